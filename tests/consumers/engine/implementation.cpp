// SPDX-License-Identifier: MIT
// The file with planner and kernels of a program without a build system.
#define FMOE_IMPLEMENTATION
#include <fmoe/mxd.hpp>
