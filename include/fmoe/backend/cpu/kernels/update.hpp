// SPDX-License-Identifier: MIT
// Steps of optimizers over a part of a parameter's elements. Each element is computed from its own
// numbers alone, in the operations and the order of PyTorch, so it does not matter how elements are
// cut into parts.
#pragma once

#include <fmoe/backend/cpu/kernels/norm.hpp>
#include <fmoe/backend/cpu/kernels/update_numbers.hpp>

namespace fmoe::cpu {

// Calls f(i, n) for vectors of the elements [0, count); the last one may be short.
template <class T, class Arch, class F>
FMOE_ALWAYS_INLINE void each_vector(extent count, F f) noexcept {
  constexpr extent width = lanes<T, Arch>;
  extent i = 0;
  for (; i + width <= count; i += width) f(i, width);
  if (i < count) f(i, count - i);
}

// w becomes the weights after a step with the gradients g; the buffer is not read without momentum.
template <class T, class Arch>
void sgd_update(const sgd_numbers& r, T* w, const T* g, T* buffer, extent count) noexcept {
  using v = vec<T, Arch>;
  const v momentum(static_cast<T>(r.momentum)), damping(static_cast<T>(r.damping)),
      decay(static_cast<T>(r.weight_decay)), rate(static_cast<T>(-r.rate));
  each_vector<T, Arch>(count, [&](extent i, extent n) {
    const v weights = load_part<T, Arch>(w + i, n);
    v slope = fmadd(decay, weights, load_part<T, Arch>(g + i, n));
    if (r.momentum != 0) {
      v average = slope;
      if (!r.is_first) average = load_part<T, Arch>(buffer + i, n) * momentum + damping * slope;
      store_part<T, Arch>(buffer + i, n, average);
      slope = r.nesterov ? fmadd(momentum, average, slope) : average;
    }
    store_part<T, Arch>(w + i, n, fmadd(rate, slope, weights));
  });
}

// The same for Adam and AdamW, with the averages of g (first) and of g^2 (second).
template <class T, class Arch>
void adam_update(const adam_numbers& r, T* w, const T* g, T* first, T* second,
                 extent count) noexcept {
  using v = vec<T, Arch>;
  const v keep(static_cast<T>(1 - r.beta1)), beta2(static_cast<T>(r.beta2)),
      rest(static_cast<T>(1 - r.beta2)), epsilon(static_cast<T>(r.epsilon)),
      pull(static_cast<T>(r.pull)), shrink(static_cast<T>(r.shrink)), rate(static_cast<T>(-r.rate)),
      root(static_cast<T>(r.root));
  each_vector<T, Arch>(count, [&](extent i, extent n) {
    const v weights = load_part<T, Arch>(w + i, n) * shrink;
    const v slope = fmadd(pull, weights, load_part<T, Arch>(g + i, n));
    const v m = load_part<T, Arch>(first + i, n), u = load_part<T, Arch>(second + i, n);
    const v mean = fmadd(keep, slope - m, m), square = fmadd(rest * slope, slope, beta2 * u);
    store_part<T, Arch>(first + i, n, mean);
    store_part<T, Arch>(second + i, n, square);
    const v length = divide<T, Arch>(square_root<T, Arch>(square), root) + epsilon;
    store_part<T, Arch>(w + i, n, fmadd(rate, divide<T, Arch>(mean, length), weights));
  });
}

// x *= factor.
template <class T, class Arch>
void scale_in_place(T* x, T factor, extent count) noexcept {
  each_vector<T, Arch>(count, [&](extent i, extent n) {
    store_part<T, Arch>(x + i, n, load_part<T, Arch>(x + i, n) * vec<T, Arch>(factor));
  });
}

// Rounds floats to numbers of 16 bits.
template <class S, class Arch>
void narrow_weights(const float* from, S* to, extent count) noexcept {
  for (extent i = 0; i < count; ++i) to[i] = S(from[i]);
}

}  // namespace fmoe::cpu
