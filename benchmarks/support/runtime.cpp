// SPDX-License-Identifier: MIT
// Planner and kernels, compiled once for all benchmarks.
#include <fmoe/src.hpp>
