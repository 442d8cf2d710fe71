// SPDX-License-Identifier: MIT
// y[n] = exp(x[n] - max x) / sum. A row with a NaN or +infinity, or of -infinity alone, becomes NaN by itself: there
// x - max has a NaN, which the sum spreads.
#pragma once

#include <fmoe/cpu/pointwise.hpp>

namespace fmoe::cpu {

// May be in place. The sum is compensated (Kahan), at no cost beside exp, so that its error does not grow with n.
template <class T, class Arch>
void softmax(const T* x, T* y, extent n) noexcept {
  using v = vec<T, Arch>;
  constexpr extent width = lanes<T, Arch>;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  v most(-infinity), total(T(0)), lost(T(0));
  for (extent i = 0; i < n; i += width) most = larger(most, load_part<T, Arch>(x + i, std::min(width, n - i), -infinity));
  const v top(greatest(most));
  for (extent i = 0; i < n; i += width) {
    const extent part = std::min(width, n - i);
    store_part<T, Arch>(y + i, part, exponential<T, Arch>(load_part<T, Arch>(x + i, part) - top));
    const v term = load_part<T, Arch>(y + i, part) - lost, next = total + term;
    lost = (next - total) - term;
    total = next;
  }
  const v scale = v(T(1)) / v(sum<T, Arch>(total));
  for (extent i = 0; i < n; i += width) {
    const extent part = std::min(width, n - i);
    store_part<T, Arch>(y + i, part, load_part<T, Arch>(y + i, part) * scale);
  }
}

}  // namespace fmoe::cpu
