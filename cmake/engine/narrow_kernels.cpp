// SPDX-License-Identifier: MIT
// A part of fmoe::fmoe, compiled for each instruction set: the kernels of products whose weights,
// or whose rows, have fewer bits than floats.
#include <fmoe/backend/cpu/narrow_kernels_src.hpp>
