// SPDX-License-Identifier: MIT
// What precompiled.hpp leaves out of the tests, for double.
#include "precompiled.hpp"

template class fmoe::cpu::compiled_plan<double, fmoe::cpu::native>;
template class fmoe::test::runner<double>;
