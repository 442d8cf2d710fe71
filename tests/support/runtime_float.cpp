// SPDX-License-Identifier: MIT
// The templates that precompiled.hpp keeps out of the tests, for float.
#include "precompiled.hpp"

template class fmoe::cpu::compiled_plan<float, fmoe::cpu::native>;
template class fmoe::test::runner<float>;
