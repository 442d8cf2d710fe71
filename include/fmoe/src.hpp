// SPDX-License-Identifier: MIT
// Planner and kernels for a program whose other translation units define FMOE_SEPARATE_COMPILATION,
// which makes them small. Include this header in one translation unit for each instruction set that
// they name.
#pragma once

#include <fmoe/backend/cpu/plan_runner.hpp>

template class fmoe::cpu::compiled_plan<float, fmoe::cpu::native>;
template class fmoe::cpu::compiled_plan<double, fmoe::cpu::native>;
