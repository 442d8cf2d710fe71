// SPDX-License-Identifier: MIT
// Products, sums and permutations of small tensors by nested loops over any strides: c[out] = sum
// over `summed` of a[...] b[...]. The last axis of `out` is contiguous in c and runs in vectors.
// Each element is summed in the order of `summed`, whatever the vector width.
#pragma once

#include <span>

#include <fmoe/backend/cpu/kernels/simd.hpp>
#include <fmoe/plan/plan.hpp>

namespace fmoe::cpu {

// Loads n <= lanes elements p[0], p[stride], ...
template <class T, class Arch>
vec<T, Arch> load_strided(const T* p, extent stride, extent n) noexcept {
  if (stride == 0) return vec<T, Arch>(*p);
  if (stride == 1) return n == lanes<T, Arch> ? load<T, Arch>(p) : load_part<T, Arch>(p, n);
  T buffer[lanes<T, Arch>] = {};
  for (extent i = 0; i < n; ++i) buffer[i] = p[i * stride];
  return load<T, Arch>(buffer);
}

// Returns one vector of c; a null b means that there is no second operand.
template <class T, class Arch>
vec<T, Arch> nest_sum(const T* a, const T* b, extent a_stride, extent b_stride, extent n,
                      std::span<const nest_axis> summed, vec<T, Arch> sum) noexcept {
  if (summed.empty()) {
    const auto x = load_strided<T, Arch>(a, a_stride, n);
    return b != nullptr ? fmadd<T, Arch>(x, load_strided<T, Arch>(b, b_stride, n), sum) : sum + x;
  }
  const nest_axis& s = summed.front();
  for (extent i = 0; i < s.length; ++i)
    sum = nest_sum<T, Arch>(a + i * s.a, b != nullptr ? b + i * s.b : nullptr, a_stride, b_stride,
                            n, summed.subspan(1), sum);
  return sum;
}

// How a sum meets what its place holds: it ignores that, goes on from it, or is added to it when it
// is complete.
enum class sum_into : std::uint8_t { nothing, started, total };

template <class T, class Arch>
void nest(const T* a, const T* b, T* c, std::span<const nest_axis> out,
          std::span<const nest_axis> summed, sum_into held = sum_into::nothing) noexcept {
  if (out.size() > 1) {
    const nest_axis& o = out.front();
    for (extent i = 0; i < o.length; ++i)
      nest<T, Arch>(a + i * o.a, b != nullptr ? b + i * o.b : nullptr, c + i * o.c, out.subspan(1),
                    summed, held);
    return;
  }
  const nest_axis v = out.empty() ? nest_axis{1, 0, 0, 1} : out.front();
  for (extent i = 0; i < v.length; i += lanes<T, Arch>) {
    const extent n = std::min(lanes<T, Arch>, v.length - i);
    const auto start =
        held == sum_into::started ? load_part<T, Arch>(c + i, n) : vec<T, Arch>(T(0));
    auto sum = nest_sum<T, Arch>(a + i * v.a, b != nullptr ? b + i * v.b : nullptr, v.a, v.b, n,
                                 summed, start);
    if (held == sum_into::total) sum = load_part<T, Arch>(c + i, n) + sum;
    store_part<T, Arch>(c + i, n, sum);
  }
}

}  // namespace fmoe::cpu
