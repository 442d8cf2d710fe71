// SPDX-License-Identifier: MIT
// Precompiled for every test: what most of them include. Planner and kernels are compiled once for
// each instruction set, in runtime_float.cpp and runtime_double.cpp.
#pragma once

#include <fmoe/mxd.hpp>

#include "catch.hpp"
#include "run.hpp"

extern template class fmoe::test::runner<float>;
extern template class fmoe::test::runner<double>;
