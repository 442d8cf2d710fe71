// SPDX-License-Identifier: MIT
// expect: a sentence
int x;
