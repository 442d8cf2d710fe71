// SPDX-License-Identifier: MIT
// Sums of rows of a table, or of a group, that a selection names.
#pragma once

#include <fmoe/backend/cuda/kernels/group.hpp>
#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/kernels/selection.hpp>

namespace fmoe::cuda {

// The scales of a table of 8 bits: that of the first number read of a row, and the scales of a row.
// Own neighbours share one.
struct row_scales {
  const float* at = nullptr;
  extent each = 0;
};

// Sums of Own neighbouring columns.
template <class T, class S, unsigned Own>
struct sum_of_rows {
  T sums[Own] = {};

  // Adds the numbers at `at` of rows that are `step` apart times their values, in order. Eight rows
  // are read before the first one is added, because they come from random places in memory.
  FMOE_DEVICE void add(const T* values, const index* places, index count, const S* at, extent step,
                       const row_scales& scales = {}) {
    index k = 0;
    for (; k + ahead <= count; k += ahead)
      add_some<ahead>(values + k, places + k, at, step, scales);
    for (; k < count; ++k) add_some<1>(values + k, places + k, at, step, scales);
  }

 private:
  static constexpr index ahead = 8;

  template <index Rows>
  FMOE_DEVICE void add_some(const T* values, const index* places, const S* at, extent step,
                            const row_scales& scales) {
    pack<S, Own> row[Rows];
    T value[Rows];
    float scale[Rows];
    FMOE_UNROLL
    for (index j = 0; j < Rows; ++j) {
      row[j] = load_pack<S, Own>(at + places[j] * step);
      value[j] = values[j];
      if constexpr (is_scaled<S>) scale[j] = scales.at[places[j] * scales.each];
    }
    FMOE_UNROLL
    for (index j = 0; j < Rows; ++j) {
      FMOE_UNROLL
      for (unsigned e = 0; e < Own; ++e) {
        auto number = widened(row[j].of[e]);
        if constexpr (is_scaled<S>) number = product_of(number, scale[j]);
        sums[e] = fused(value[j], T(number), sums[e]);
      }
    }
  }
};

// As gather_rows: c[t, n] is the sum over the rows of a selection, and over their entries in order,
// of the value times the table's row; then the passes. A thread makes Own neighbouring columns. S
// is the type of the table in memory. With Own > 1 rows are whole accesses.
template <class T, class S, unsigned Own>
struct gather_columns {
  selections_at<T> from;
  const S* table;
  rows_at<T> c;
  extent rows, columns, table_row;
  passes<T> finish;
  const float* scales = nullptr;
  extent scale_block = 1;  // neighbours in a row that share a scale

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / (columns / Own), n = i % (columns / Own) * Own;
    sum_of_rows<T, S, Own> sum;
    for (extent r = 0; r < rows; ++r) {
      const selection_row<T> a = from.row(token, r);
      const extent first = r * table_row + n;
      row_scales of_rows;
      if constexpr (is_scaled<S>) of_rows = {scales + first / scale_block, columns / scale_block};
      sum.add(a.values(), a.indices(), a.count(), table + first, columns, of_rows);
    }
    T* const to = c.row(token) + n;
    finish(sum.sums, 0, [&](unsigned e) { return number_place{token, n + e}; });
    FMOE_UNROLL
    for (unsigned e = 0; e < Own; ++e) to[e] = sum.sums[e];
  }
};

// As put_rows, the end of a group: a thread makes Own neighbouring columns.
template <class T, unsigned Own>
struct put_columns {
  put_rows<T> of;

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / (of.columns / Own), n = i % (of.columns / Own) * Own;
    const selection_row<T> s = of.selections.row(token, 0);
    sum_of_rows<T, T, Own> sum;
    sum.add(s.values(), of.rows + token * of.selections.keep, s.count(), of.a.data + n,
            of.a.stride);
    T* const to = of.c.row(token) + n;
    of.finish(sum.sums, 0, [&](unsigned e) { return number_place{token, n + e}; });
    FMOE_UNROLL
    for (unsigned e = 0; e < Own; ++e) to[e] = sum.sums[e];
  }
};

}  // namespace fmoe::cuda
