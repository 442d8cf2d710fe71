// SPDX-License-Identifier: MIT
// The kernels of narrow_kernels.hpp, instantiated for the instruction set of this translation unit.
#pragma once

#include <fmoe/backend/cpu/narrow_kernels.hpp>

namespace fmoe::cpu {

template const gemm_kernels<float>& dot_kernels<native_arch>();
template const stored_weights<float>* narrow_weights<native_arch>(dtype);

}  // namespace fmoe::cpu
