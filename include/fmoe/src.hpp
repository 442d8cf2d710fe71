// SPDX-License-Identifier: MIT
// Planner and kernels for a program whose other translation units are compiled with
// FMOE_SEPARATE_COMPILATION defined, which makes them small: include this in one translation unit
// of each instruction set that they name.
#pragma once

#include <fmoe/backend/cpu/parallel-inl.hpp>
#include <fmoe/backend/cpu/plan_runner.hpp>
#include <fmoe/io/src.hpp>

template class fmoe::cpu::compiled_plan<float, fmoe::cpu::native>;
template class fmoe::cpu::compiled_plan<double, fmoe::cpu::native>;
