// SPDX-License-Identifier: MIT
// A part of fmoe::fmoe, compiled for the lowest instruction set: the CPU's backend, which chooses
// the kernels.
#include <fmoe/backend/cpu/src.hpp>
