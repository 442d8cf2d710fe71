// SPDX-License-Identifier: MIT
// The kernels of weights and rows that are stored in fewer bits than floats. They are half of
// a level's code, so that a translation unit of their own compiles them.
#pragma once

#include <fmoe/backend/cpu/kernels/screen.hpp>
#include <fmoe/backend/cpu/stored_weights.hpp>

namespace fmoe::cpu {

extern template const gemm_kernels<float>& plain_kernels<float, float, native_arch>();
extern template const gemm_kernels<float>& dot_kernels<native_arch>();
extern template const stored_weights<float>* narrow_weights<native_arch>(dtype);

}  // namespace fmoe::cpu
