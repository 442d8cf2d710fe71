// SPDX-License-Identifier: MIT
// The templates that precompiled.hpp keeps out of the tests, for double.
#include "precompiled.hpp"

template class fmoe::cpu::compiled_plan<double, fmoe::cpu::native>;
template class fmoe::test::runner<double>;
