// SPDX-License-Identifier: MIT
// The gates of base/functions.hpp: functions of a row.
#pragma once

#include <fmoe/backend/cpu/kernels/entmax.hpp>
#include <fmoe/backend/cpu/kernels/norm.hpp>
#include <fmoe/backend/cpu/kernels/softmax.hpp>

namespace fmoe::cpu {

// Computes y[n] from x[n], or y[0] for a norm. May be in place.
template <class T, class Arch>
[[gnu::noinline]] void apply(gate fn, double parameter, const T* x, T* y, extent n,
                             T bound) noexcept {
  switch (fn) {
    case gate::softmax: return softmax<T, Arch>(x, y, n);
    case gate::bounded_softmax: return softmax<T, Arch>(x, y, n, bound);
    case gate::entmax: return entmax<T, Arch>(x, y, n, parameter);
    case gate::layer_norm: return layer_norm<T, Arch>(x, y, n, parameter);
    case gate::rms_norm: return rms_norm<T, Arch>(x, y, n, parameter);
    case gate::l1_norm:
    case gate::l2_norm:
    case gate::max_norm: y[0] = norm<T, Arch>(fn, x, n);
  }
}

}  // namespace fmoe::cpu
