// SPDX-License-Identifier: MIT
// y[n] = exp(x[n] - max x) / sum over the entries that reach a bound, and 0 for the others; all
// reach -infinity. A row with a NaN or +infinity, or a row of -infinity only, becomes NaN, because
// x - max has a NaN and the sum spreads it; other rows are not affected.
#pragma once

#include <fmoe/backend/cpu/kernels/pointwise.hpp>

namespace fmoe::cpu {

// Returns the greatest entry, or NaN if an entry is NaN.
template <class T, class Arch>
T greatest_of(const T* x, extent n) noexcept {
  constexpr extent width = lanes<T, Arch>;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  vec<T, Arch> most(-infinity);
  for (extent i = 0; i < n; i += width)
    most = larger(most, load_part<T, Arch>(x + i, std::min(width, n - i), -infinity));
  return greatest(most);
}

// Returns the sum of exp(x[n] - top) over the entries not below `bound`. Unless y is null, y[n]
// becomes the exponential of each of them, and 0 for the others. May be in place. The sum is
// compensated (Kahan), which costs nothing beside exp, so its error does not grow with n.
template <class T, class Arch>
T exponentials(const T* x, T* y, extent n, T top, T bound) noexcept {
  using v = vec<T, Arch>;
  constexpr extent width = lanes<T, Arch>, vectors = vectors_of_sum<Arch>;
  std::array<v, vectors> total, lost;
  total.fill(v(T(0)));
  lost.fill(v(T(0)));
  for (extent first = 0; first < n; first += vectors * width) {
    FMOE_ROUNDS(2)
    for (extent at = 0; at < vectors; ++at) {
      const extent i = std::min(first + at * width, n), part = std::min(width, n - i);
      const v score = load_part<T, Arch>(x + i, part, -std::numeric_limits<T>::infinity());
      const v e =
          select(score < v(bound), v(T(0)), vector_functions<T, Arch>::exponential(score - v(top)));
      if (y != nullptr) store_part<T, Arch>(y + i, part, e);
      const v term = e - lost[at], next = total[at] + term;
      lost[at] = (next - total[at]) - term;
      total[at] = next;
    }
  }
  return sum<T, Arch>(total);
}

// May be in place.
template <class T, class Arch>
void softmax(const T* x, T* y, extent n, T bound = -std::numeric_limits<T>::infinity()) noexcept {
  using v = vec<T, Arch>;
  constexpr extent width = lanes<T, Arch>;
  const T top = greatest_of<T, Arch>(x, n);
  const v sum(exponentials<T, Arch>(x, y, n, top, bound > top ? top : bound)),
      scale = divide<T, Arch>(v(T(1)), sum);
  for (extent i = 0; i < n; i += width) {
    const extent part = std::min(width, n - i);
    store_part<T, Arch>(y + i, part, load_part<T, Arch>(y + i, part) * scale);
  }
}

}  // namespace fmoe::cpu
