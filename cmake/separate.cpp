// SPDX-License-Identifier: MIT
// fmoe::separate adds this file to a target: it compiles the planner and the kernels with the
// target's own flags.
#include <fmoe/src.hpp>
