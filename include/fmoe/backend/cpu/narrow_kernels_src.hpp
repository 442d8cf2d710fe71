// SPDX-License-Identifier: MIT
// The kernels of narrow_kernels.hpp, instantiated for the instruction set of this translation unit.
#pragma once

#include <fmoe/backend/cpu/narrow_kernels.hpp>

namespace fmoe::cpu {

template const gemm_kernels<float>& plain_kernels<float, bf16, native_arch>();
template const gemm_kernels<float>& plain_kernels<float, read_f16, native_arch>();
template const gemm_kernels<float>& bf16_kernels<native_arch>(bf16_form);
template const gemm_kernels<float>& int8_kernels<q8, native_arch>();
template const gemm_kernels<float>& int8_kernels<q8c, native_arch>();
template const gemm_kernels<float>& int8_product_kernels<native_arch>(int8_step);
template const gemm_kernels<float>& dot_kernels<native_arch>();

}  // namespace fmoe::cpu
