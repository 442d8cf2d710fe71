// SPDX-License-Identifier: MIT
// What fmoe::separate adds to a target: planner and kernels, for the target's own flags.
#include <fmoe/src.hpp>
