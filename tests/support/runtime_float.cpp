// SPDX-License-Identifier: MIT
// What precompiled.hpp leaves out of the tests, for float.
#include "precompiled.hpp"

template class fmoe::cpu::compiled_plan<float, fmoe::cpu::native>;
template class fmoe::test::runner<float>;
