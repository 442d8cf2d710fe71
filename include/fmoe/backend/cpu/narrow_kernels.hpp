// SPDX-License-Identifier: MIT
// The kernels of products whose weights, or whose rows, are stored in fewer bits than floats. They
// are half of a level's code, so that a translation unit of their own compiles them.
#pragma once

#include <type_traits>

#include <fmoe/backend/cpu/kernels/bf16_product.hpp>
#include <fmoe/backend/cpu/kernels/int8_kernels.hpp>
#include <fmoe/backend/cpu/kernels/int8_product.hpp>
#include <fmoe/backend/cpu/kernels/screen.hpp>

namespace fmoe::cpu {

// f16, or float where no instruction widens it.
using read_f16 = std::conditional_t<widens<float, f16, native_arch>, f16, float>;

extern template const gemm_kernels<float>& plain_kernels<float, float, native_arch>();
extern template const gemm_kernels<float>& plain_kernels<float, bf16, native_arch>();
extern template const gemm_kernels<float>& plain_kernels<float, read_f16, native_arch>();
extern template const gemm_kernels<float>& bf16_kernels<native_arch>(bf16_form);
extern template const gemm_kernels<float>& int8_kernels<q8, native_arch>();
extern template const gemm_kernels<float>& int8_kernels<q8c, native_arch>();
extern template const gemm_kernels<float>& int8_product_kernels<native_arch>(int8_step);
extern template const gemm_kernels<float>& dot_kernels<native_arch>();

}  // namespace fmoe::cpu
