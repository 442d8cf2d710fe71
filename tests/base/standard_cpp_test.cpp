// SPDX-License-Identifier: MIT
// Compiled with FMOE_STANDARD_CPP, so that the compiler's own words are those of the standard: what
// they mean, and kernels that are written with them.
#include "../cpu/row_products_test.cpp"
#include "../cpu/transpose_test.cpp"
#include "compiler_test.cpp"
