// SPDX-License-Identifier: MIT
// expect: a sentence
static_assert(false, "a sentence");
