// SPDX-License-Identifier: MIT
// A part of fmoe::fmoe, compiled for each instruction set: the kernels.
#include <fmoe/kernels_src.hpp>
