// SPDX-License-Identifier: MIT
// fmoe::dispatch compiles this file for the lowest instruction set: the planner, and the choice of
// the kernels.
#include <fmoe/src.hpp>
