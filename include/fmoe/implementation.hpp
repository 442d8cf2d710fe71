// SPDX-License-Identifier: MIT
// Planner, backends and kernels in the one file of a program that defines FMOE_IMPLEMENTATION
// before it includes fmoe. The other files are compiled with -DFMOE_SEPARATE_COMPILATION.
//
//   #define FMOE_IMPLEMENTATION
//   #include <fmoe/mxd.hpp>
#pragma once

#if defined(FMOE_IMPLEMENTATION)
#include <fmoe/src.hpp>
#endif
