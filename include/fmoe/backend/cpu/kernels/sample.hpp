// SPDX-License-Identifier: MIT
// out[k] = sum over n of x[n] table[indices[k], n]: the products of a row with selected rows of a
// table.
#pragma once

#include <array>

#include <fmoe/backend/cpu/kernels/gather.hpp>

namespace fmoe::cpu {

// out[r] = x times row r of Rows rows; meanwhile the four rows at `ahead` are fetched into L2. The
// order of a sum depends only on n.
template <class T, class Arch, class Table, extent Rows>
void sample_rows(const T* x, const Table* rows, const Table* ahead, extent n, T* out) noexcept {
  constexpr extent lane = lanes<T, Arch>, vectors = vectors_of_sum<Arch>, width = vectors * lane,
                   line = 64 / bytes_of_number<Table>;
  std::array<vec<T, Arch>, vectors> even[Rows], odd[Rows];
  FMOE_ROUNDS(4)
  for (extent r = 0; r < Rows; ++r) {
    even[r].fill(vec<T, Arch>(T(0)));
    odd[r].fill(vec<T, Arch>(T(0)));
  }
  extent i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    FMOE_ROUNDS(2)
    for (extent at = 0; at < vectors; ++at) {
      const extent j = i + at * lane;
      const auto first = load<T, Arch>(x + j), second = load<T, Arch>(x + j + width);
      FMOE_ROUNDS(4)
      for (extent r = 0; r < Rows; ++r) {
        even[r][at] = fmadd<T, Arch>(first, load_as<T, Arch>(rows[r] + j), even[r][at]);
        odd[r][at] = fmadd<T, Arch>(second, load_as<T, Arch>(rows[r] + j + width), odd[r][at]);
      }
    }
    FMOE_ROUNDS(4)
    for (extent r = 0; r < 4; ++r)
      for (extent l = 0; l < 2 * width; l += line)
        FMOE_PREFETCH_FOR_LATER(address_of(ahead[r] + i + l));
  }
  for (bool is_even = true; i < n; i += width, is_even = false) {
    FMOE_ROUNDS(2)
    for (extent at = 0; at < vectors; ++at) {
      const extent j = i + at * lane;
      if (at > 0 && j >= n) break;
      const extent part = std::min(lane, n - j);
      const auto last = load_part<T, Arch>(x + j, part);
      FMOE_ROUNDS(4)
      for (extent r = 0; r < Rows; ++r) {
        auto& sum = (is_even ? even[r] : odd[r])[at];
        sum = fmadd<T, Arch>(last, load_part_as<T, Arch>(rows[r] + j, part), sum);
        FMOE_PREFETCH_FOR_LATER(address_of(ahead[r] + j));
      }
    }
  }
  FMOE_ROUNDS(4)
  for (extent r = 0; r < Rows; ++r) {
    for (extent at = 0; at < vectors; ++at) even[r][at] = even[r][at] + odd[r][at];
    out[r] = sum<T, Arch>(even[r]);
  }
}

// Rows come from random places in DRAM: four are read side by side while the next four are fetched,
// at the end those of the next selection.
template <class T, class Arch, class Table>
FMOE_NOINLINE void sample(const T* x, Table table, extent n, selected<T> s, selected<T> next,
                          T* out) noexcept {
  constexpr void (*kernels[])(const T*, const Table*, const Table*, extent, T*) noexcept = {
      sample_rows<T, Arch, Table, 1>, sample_rows<T, Arch, Table, 2>,
      sample_rows<T, Arch, Table, 3>, sample_rows<T, Arch, Table, 4>};
  for (extent k = 0; k < s.count; k += 4) {
    const extent count = std::min<extent>(4, s.count - k);
    const four_rows<Table> rows(table, n, s, next, k);
    kernels[count - 1](x, rows.now, rows.ahead, n, out + k);
  }
}

}  // namespace fmoe::cpu
