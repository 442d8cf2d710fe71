// SPDX-License-Identifier: MIT
// The functions of rows of base/functions.hpp.
#pragma once

#include <fmoe/backend/cpu/kernels/entmax.hpp>
#include <fmoe/backend/cpu/kernels/norm.hpp>
#include <fmoe/backend/cpu/kernels/softmax.hpp>

namespace fmoe::cpu {

// Computes y[n] from x[n]. May be in place.
template <class T, class Arch>
FMOE_NOINLINE void apply(row_function fn, double parameter, const T* x, T* y, extent n,
                         T bound) noexcept {
  switch (fn) {
    case row_function::softmax: return softmax<T, Arch>(x, y, n);
    case row_function::bounded_softmax: return softmax<T, Arch>(x, y, n, bound);
    case row_function::entmax: return entmax<T, Arch>(x, y, n, parameter);
    case row_function::layer_norm: return layer_norm<T, Arch>(x, y, n, parameter);
    case row_function::rms_norm: return rms_norm<T, Arch>(x, y, n, parameter);
    case row_function::clamped_rms_norm: return clamped_rms_norm<T, Arch>(x, y, n, parameter);
  }
}

}  // namespace fmoe::cpu
