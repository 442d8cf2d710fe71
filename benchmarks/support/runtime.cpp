// SPDX-License-Identifier: MIT
// The planner and the kernels, compiled once for all benchmarks.
#include <fmoe/evaluate.hpp>

template class fmoe::cpu::compiled_plan<float, fmoe::cpu::native>;
