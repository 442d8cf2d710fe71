// SPDX-License-Identifier: MIT
// fmoe::dispatch compiles this file for each level.
#define FMOE_SEPARATE_COMPILATION
#include <fmoe/kernels_src.hpp>
