// SPDX-License-Identifier: MIT
// The CPU's backend: its planning, with the kernels that other translation units have.
#pragma once

#include <fmoe/backend/cpu/host-inl.hpp>
#include <fmoe/backend/cpu/parallel-inl.hpp>

template std::shared_ptr<const fmoe::backend> fmoe::cpu::host<float, fmoe::cpu::native>();
template std::shared_ptr<const fmoe::backend> fmoe::cpu::host<double, fmoe::cpu::native>();
