// SPDX-License-Identifier: MIT
// The CPU's backend, instantiated for the instruction set of this translation unit.
#pragma once

#include <fmoe/backend/cpu/host-inl.hpp>

template std::shared_ptr<const fmoe::backend> fmoe::cpu::host<float, fmoe::cpu::native>();
template std::shared_ptr<const fmoe::backend> fmoe::cpu::host<double, fmoe::cpu::native>();
