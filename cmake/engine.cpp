// SPDX-License-Identifier: MIT
// fmoe::fmoe compiles this file: the planner, and the choice of the kernels, for the lowest
// instruction set; or the planner and the kernels where there is one instruction set.
#include <fmoe/src.hpp>
