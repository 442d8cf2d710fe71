// SPDX-License-Identifier: MIT
// The CPU's kernels, instantiated for the instruction set of this translation unit, but for those
// of narrow_kernels_src.hpp.
#pragma once

#include <fmoe/backend/cpu/level_kernels-inl.hpp>
#include <fmoe/backend/cpu/narrow_kernels.hpp>

template const fmoe::cpu::level_kernels& fmoe::cpu::level_kernels_of<float, fmoe::cpu::native>();
template const fmoe::cpu::level_kernels& fmoe::cpu::level_kernels_of<double, fmoe::cpu::native>();

namespace fmoe::cpu {

template const gemm_kernels<float>& plain_kernels<float, float, native_arch>();

}  // namespace fmoe::cpu
