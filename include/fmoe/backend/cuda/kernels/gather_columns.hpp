// SPDX-License-Identifier: MIT
// As gather_rows: c[t, n] is the sum over the rows of a selection, and over their entries in order,
// of the value times the table's row; then the passes. A thread makes Own neighbouring columns, and
// reads eight rows before it adds the first one, because rows come from random places in memory.
#pragma once

#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/kernels/selection.hpp>

namespace fmoe::cuda {

// S is the type of the table in memory. With Own > 1 rows are whole accesses.
template <class T, class S, unsigned Own>
struct gather_columns {
  selections_at<T> from;
  const S* table;
  rows_at<T> c;
  extent rows, columns, table_row;
  passes<T> finish;

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / (columns / Own), n = i % (columns / Own) * Own;
    T sums[Own] = {};
    for (extent r = 0; r < rows; ++r) {
      const selection_row<T> a = from.row(token, r);
      const S* const at = table + r * table_row + n;
      const index count = a.count();
      index k = 0;
      for (; k + ahead <= count; k += ahead) add<ahead>(a, k, at, sums);
      for (; k < count; ++k) add<1>(a, k, at, sums);
    }
    T* const to = c.row(token) + n;
    FMOE_UNROLL_BY(1)
    for (unsigned e = 0; e < Own; ++e) {
      to[e] = finish(sums[0], token, n + e);
      FMOE_UNROLL
      for (unsigned next = 0; next + 1 < Own; ++next) sums[next] = sums[next + 1];
    }
  }

 private:
  static constexpr index ahead = 8;

  template <index Rows>
  FMOE_DEVICE void add(const selection_row<T>& a, index k, const S* at, T (&sums)[Own]) const {
    pack<S, Own> row[Rows];
    T values[Rows];
    FMOE_UNROLL
    for (index j = 0; j < Rows; ++j) {
      row[j] = load_pack<S, Own>(at + a.indices()[k + j] * columns);
      values[j] = a.values()[k + j];
    }
    FMOE_UNROLL
    for (index j = 0; j < Rows; ++j) {
      FMOE_UNROLL
      for (unsigned e = 0; e < Own; ++e)
        sums[e] = fused(values[j], T(widened(row[j].of[e])), sums[e]);
    }
  }
};

}  // namespace fmoe::cuda
