// SPDX-License-Identifier: MIT
// What precompiled.hpp leaves out of the tests.
#include "precompiled.hpp"

template class fmoe::cpu::compiled_plan<float, fmoe::cpu::native>;
template class fmoe::cpu::compiled_plan<double, fmoe::cpu::native>;
