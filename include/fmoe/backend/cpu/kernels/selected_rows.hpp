// SPDX-License-Identifier: MIT
// Lists the rows of a table that the tokens of a call selected, in ascending order, and makes room
// for them among those that are there.
#pragma once

#include <algorithm>

#include <fmoe/arrays/table_rows.hpp>
#include <fmoe/backend/cpu/kernels/gather.hpp>

namespace fmoe::cpu {

// Forgets all rows.
inline void clear_rows(table_rows& rows) noexcept {
  for (extent i = 0; i < rows.count; ++i) rows.places[rows.numbers[i]] = 0;
  rows.count = 0;
}

// Sorts the numbers of the fresh rows, which are marked in `places`, of `all_rows` rows.
inline void sort_fresh(table_rows& rows, extent fresh, extent all_rows) noexcept {
  constexpr extent scanned = 16;  // a scan of so many marks takes no longer than a row in a sort
  if (fresh * scanned < all_rows) {
    std::sort(rows.fresh, rows.fresh + fresh);
    return;
  }
  std::uint32_t* to = rows.fresh;
  for (extent n = 0; n < all_rows; ++n) {
    *to = static_cast<std::uint32_t>(n);
    to += rows.places[n] == table_rows::is_fresh;
    if (to == rows.fresh + fresh) return;
  }
}

// Adds the rows that `kept` selects, which it gives for each of `row_count` rows of each token;
// from one of a token's rows to the next the numbers grow by `own`. If the call adds to the rows
// that are there, these move to their places, `width` elements each at `values`, and those that
// come are 0.
template <class T>
void list_rows(table_rows& rows, extent all_rows, T* values, extent width, extent tokens,
               extent row_count, extent own, bool adds, const auto& kept) noexcept {
  if (!adds) clear_rows(rows);
  extent fresh = 0;
  for (extent t = 0; t < tokens; ++t)
    for (extent r = 0; r < row_count; ++r) {
      const selected<T> entries = kept(t, r);
      for (extent i = 0; i < entries.count; ++i) {
        const extent n = r * own + entries.indices[i];
        if (rows.places[n] != 0) continue;
        rows.places[n] = table_rows::is_fresh;
        rows.fresh[fresh++] = static_cast<std::uint32_t>(n);
      }
    }
  sort_fresh(rows, fresh, all_rows);
  extent old = rows.count;
  rows.count += fresh;
  for (extent to = rows.count; to-- > 0;) {  // from behind, so that no row is written over
    const bool is_old = old != 0 && (fresh == 0 || rows.numbers[old - 1] > rows.fresh[fresh - 1]);
    if (is_old && fresh == 0) break;  // these are where they stay
    if (is_old) std::copy_n(values + --old * width, width, values + to * width);
    else if (adds) std::fill_n(values + to * width, width, T(0));
    rows.numbers[to] = is_old ? rows.numbers[old] : rows.fresh[--fresh];
    rows.places[rows.numbers[to]] = static_cast<std::uint32_t>(to + 1);
  }
}

}  // namespace fmoe::cpu
