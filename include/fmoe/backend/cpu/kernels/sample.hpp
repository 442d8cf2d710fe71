// SPDX-License-Identifier: MIT
// out[k] = sum over n of x[n] table[indices[k], n]: the products of a row with selected rows of a
// table.
#pragma once

#include <fmoe/backend/cpu/kernels/gather.hpp>

namespace fmoe::cpu {

// Rows come from random places in DRAM: the next row is fetched while one is read. The order of a
// sum depends only on n.
template <class T, class Arch, class Table>
[[gnu::noinline]] void sample(const T* x, Table table, extent n, selected<T> s, T* out) noexcept {
  constexpr extent width = lanes<T, Arch>, line = 64 / bytes_of_number<Table>;
  for (extent k = 0; k < s.count; ++k) {
    const Table row = table + s.indices[k] * n;
    const Table ahead = k + 1 < s.count ? table + s.indices[k + 1] * n : row;
    vec<T, Arch> even(T(0)), odd(T(0));
    for (extent i = 0; i < n; i += 2 * width) {
      const extent first = std::min(width, n - i),
                   second = n - i - first < width ? n - i - first : width;
      even = fmadd<T, Arch>(load_part<T, Arch>(x + i, first), load_part_as<T, Arch>(row + i, first),
                            even);
      if (second != 0)
        odd = fmadd<T, Arch>(load_part<T, Arch>(x + i + first, second),
                             load_part_as<T, Arch>(row + i + first, second), odd);
      for (extent l = 0; l < 2 * width; l += line)
        __builtin_prefetch(address_of(ahead + i + l), 0, 3);
    }
    out[k] = sum<T, Arch>(even + odd);
  }
}

}  // namespace fmoe::cpu
