// SPDX-License-Identifier: MIT
// Finds the entries of a row that are not 0. Most entries of a router's row are 0 and are skipped a
// vector at a time.
#pragma once

#include <bit>

#include <fmoe/backend/cpu/kernels/simd.hpp>

namespace fmoe::cpu {

// Calls f(i, x[i]) for each x[i] != 0, i < n ascending; NaN is not 0.
template <class T, class Arch, class F>
void each_nonzero(const T* x, extent n, const F& f) {
  constexpr extent width = lanes<T, Arch>;
  constexpr std::uint64_t every_lane = (std::uint64_t{1} << width) - 1;
  for (extent i = 0; i < n; i += width) {
    const auto part = load_part<T, Arch>(x + i, std::min(width, n - i));
    for (std::uint64_t bits = every_lane & ~to_bits<T, Arch>(part == vec<T, Arch>(T(0))); bits != 0;
         bits &= bits - 1) {
      const extent at = i + static_cast<extent>(std::countr_zero(bits));
      f(at, x[at]);
    }
  }
}

}  // namespace fmoe::cpu
