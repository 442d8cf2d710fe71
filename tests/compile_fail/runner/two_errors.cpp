// SPDX-License-Identifier: MIT
// expect: a sentence
#ifdef FMOE_MISUSE
static_assert(false, "a sentence");
static_assert(false, "another one");
#endif
