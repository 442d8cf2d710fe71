// SPDX-License-Identifier: MIT
// The CPU's kernels, instantiated for the instruction set of this translation unit.
#pragma once

#include <fmoe/backend/cpu/level_kernels-inl.hpp>

template const fmoe::cpu::level_kernels& fmoe::cpu::level_kernels_of<float, fmoe::cpu::native>();
template const fmoe::cpu::level_kernels& fmoe::cpu::level_kernels_of<double, fmoe::cpu::native>();
