// SPDX-License-Identifier: MIT
// Tells whether two arrays have a byte in common. Two blocks of columns of one matrix have none,
// although the range of addresses of each contains elements of the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmoe/arrays/array_view.hpp>

namespace fmoe::detail {

// The numbers 0, step, ..., count step.
struct multiples {
  extent step, count;
};

// True if the arrays have a byte in common. The answer is exact if each stride of both arrays, in
// bytes, is a multiple of the next smaller one, as in blocks of one array; otherwise it is true in
// doubt. It allocates nothing.
//
// A byte of a lies x behind the first byte of a, and a byte of b lies z before the last byte of b,
// where x and z are sums of multiples of strides. The arrays meet if some x + z is the distance
// from the first byte of a to the last byte of b.
inline bool overlap(const array_view& a, const array_view& b) {
  if (a.where != b.where) return false;
  const extent bytes_of_a = a.span_bytes(), bytes_of_b = b.span_bytes();
  const auto first_of_a = reinterpret_cast<std::uintptr_t>(a.data),
             first_of_b = reinterpret_cast<std::uintptr_t>(b.data);
  if (bytes_of_a == 0 || bytes_of_b == 0) return false;
  if (first_of_a >= first_of_b + bytes_of_b || first_of_b >= first_of_a + bytes_of_a) return false;

  std::array<multiples, 4 * max_rank + 1> sums;
  extent n = 0;
  sums[n++] = {1, size_of(a.type) + size_of(b.type) - 2};  // the bytes of an element
  for (const array_view* v : {&a, &b})
    for (extent i = 0; i < v->rank; ++i)
      if (v->shape[i] > 1 && v->strides[i] != 0)
        sums[n++] = {v->strides[i] * size_of(v->type), v->shape[i] - 1};
  std::sort(sums.data() + 1, sums.data() + n,
            [](multiples l, multiples r) { return l.step < r.step; });

  extent last = 0;  // multiples that leave no gap between the earlier ones are merged with them
  for (extent i = 1; i < n; ++i) {
    multiples& before = sums[last];
    const extent factor = sums[i].step / before.step;
    if (sums[i].step % before.step == 0 && factor <= before.count + 1)
      before.count += factor * sums[i].count;
    else sums[++last] = sums[i];
  }

  extent distance = first_of_b + bytes_of_b - 1 - first_of_a, rest = bytes_of_a + bytes_of_b - 2;
  for (extent i = last + 1; i-- > 0;) {
    const auto [step, count] = sums[i];
    rest -= step * count;  // the greatest sum of the smaller ones
    const extent most = std::min(count, distance / step),
                 least = distance > rest ? (distance - rest + step - 1) / step : 0;
    if (least > most) return false;
    if (least < most) return true;  // in doubt
    distance -= most * step;
  }
  return true;
}

}  // namespace fmoe::detail
