// SPDX-License-Identifier: MIT
// Precompiled for every test: most of them include these headers. The planner and the kernels are
// compiled once for each instruction set, in runtime_float.cpp and runtime_double.cpp.
#pragma once

#include <fmoe/mxd.hpp>

#include "catch.hpp"
#include "run.hpp"

extern template class fmoe::cpu::compiled_plan<float, fmoe::cpu::native>;
extern template class fmoe::cpu::compiled_plan<double, fmoe::cpu::native>;
extern template class fmoe::test::runner<float>;
extern template class fmoe::test::runner<double>;
