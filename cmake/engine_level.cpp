// SPDX-License-Identifier: MIT
// fmoe::fmoe compiles this file for each instruction set.
#define FMOE_SEPARATE_COMPILATION
#include <fmoe/kernels_src.hpp>
