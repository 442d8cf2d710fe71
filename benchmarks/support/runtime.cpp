// SPDX-License-Identifier: MIT
// Planner and kernels, compiled once for all benchmarks.
#include <fmoe/evaluate.hpp>

template class fmoe::cpu::compiled_plan<float, fmoe::cpu::native>;
