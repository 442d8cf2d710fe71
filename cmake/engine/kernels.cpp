// SPDX-License-Identifier: MIT
// A part of fmoe::fmoe, compiled for each instruction set: the kernels. Where the objects of a
// level cannot be joined, it is the only one.
#if defined(FMOE_ONE_OBJECT)
#include <fmoe/kernels_src.hpp>
#else
#include <fmoe/backend/cpu/kernels_src.hpp>
#include <fmoe/optimizers/kernels_src.hpp>
#endif
