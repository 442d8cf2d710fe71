// SPDX-License-Identifier: MIT
// c[n] (+)= sum_k values[k] table[indices[k], n]: the product of the selection of a token with a
// parameter.
#pragma once

#include <algorithm>

#include <fmoe/backend/cpu/kernels/table.hpp>

namespace fmoe::cpu {

// The entries of a row that a selection keeps: their values, their indices in ascending order, and
// their number.
template <class T>
struct selected {
  const T* values;
  const std::uint32_t* indices;
  extent count;
};

// Entries k to k + 3 of a selection as rows of a table, and the four after them, which at the end
// are the first ones of the next selection. Where there is no row ahead, it is one that is read
// now.
template <class Table>
struct four_rows {
  Table now[4], ahead[4];

  template <class T>
  four_rows(Table table, extent stride, selected<T> s, selected<T> next, extent k) noexcept
      : now{table, table, table, table},
        ahead{table, table, table, table} {
    const extent count = std::min<extent>(4, s.count - k);
    for (extent r = 0; r < count; ++r) now[r] = table + s.indices[k + r] * stride;
    for (extent r = 0; r < 4; ++r) {
      const extent at = k + 4 + r;
      if (at < s.count) ahead[r] = table + s.indices[at] * stride;
      else if (k + 4 >= s.count && r < next.count) ahead[r] = table + next.indices[r] * stride;
      else ahead[r] = now[0];
    }
  }
};

// Adds Rows rows to c, or to 0 if they are the first, and meanwhile fetches the four rows at
// `ahead` into L2, which waits for more lines of memory at a time than L1.
template <class T, class Arch, class Table, extent Rows>
void gather_rows(const Table* rows, const T* values, const Table* ahead, extent n, T* c,
                 bool first) noexcept {
  constexpr extent width = lanes<T, Arch>, line = 64 / bytes_of_number<Table>;
  vec<T, Arch> scale[Rows];
  FMOE_ROUNDS(4)
  for (extent r = 0; r < Rows; ++r) scale[r] = vec<T, Arch>(values[r]);
  for (extent i = 0; i < n; i += width) {
    const extent part = std::min(width, n - i);
    vec<T, Arch> sum = first ? vec<T, Arch>(T(0)) : load_part<T, Arch>(c + i, part);
    FMOE_ROUNDS(4)
    for (extent r = 0; r < Rows; ++r)
      sum = fmadd(scale[r], load_part_as<T, Arch>(rows[r] + i, part), sum);
    if (i % line == 0) {
      FMOE_ROUNDS(4)
      for (extent r = 0; r < 4; ++r) FMOE_PREFETCH_FOR_LATER(address_of(ahead[r] + i));
    }
    store_part<T, Arch>(c + i, part, sum);
  }
}

// Rows come from random places in DRAM. Reading four at a time and prefetching the next four, at
// the end those of the next token, keeps eight streams under way: 32 rows of 768 take 2.5 µs, and
// row by row 6.3 µs. The sum over k is in plain order. The table holds T, or narrower numbers
// (table.hpp).
template <class T, class Arch, class Table>
FMOE_NOINLINE void gather(Table table, extent row_stride, extent n, selected<T> s, selected<T> next,
                          T* c, bool accumulate) noexcept {
  constexpr void (*kernels[])(const Table*, const T*, const Table*, extent, T*, bool) noexcept = {
      gather_rows<T, Arch, Table, 1>, gather_rows<T, Arch, Table, 2>,
      gather_rows<T, Arch, Table, 3>, gather_rows<T, Arch, Table, 4>};
  if (s.count == 0 && !accumulate)
    for (extent i = 0; i < n; ++i) c[i] = 0;
  for (extent k = 0; k < s.count; k += 4) {
    const extent count = std::min<extent>(4, s.count - k);
    const four_rows<Table> rows(table, row_stride, s, next, k);
    kernels[count - 1](rows.now, s.values + k, rows.ahead, n, c, k == 0 && !accumulate);
  }
}

}  // namespace fmoe::cpu
