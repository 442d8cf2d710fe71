// SPDX-License-Identifier: MIT
// Sums over the tokens of a call. Blocks of tokens at fixed places are summed in plain order and
// added in order, as on the CPU; a thread makes one number.
#pragma once

#include <fmoe/backend/cuda/kernels/group.hpp>
#include <fmoe/backend/cuda/kernels/nest.hpp>

namespace fmoe::cuda {

// c[out] is the sum over tokens, and over `summed`, of a[t, ...] b[t, ...]; a null b counts as 1.
template <class T>
struct token_sums {
  rows_at<const T> a, b;
  T* c;
  nest_loops<T> out, summed;
  extent tokens, block;

  FMOE_DEVICE void operator()(extent i) const {
    const T *x = a.data, *y = b.data;
    extent at = 0;
    out.move(i, x, y, at);
    T total = 0;
    for (extent first = 0; first < tokens; first += block) {
      T sum = 0;
      for (extent t = first; t < tokens && t < first + block; ++t)
        for (extent n = 0; n < summed.places; ++n) {
          const T *u = x + t * a.stride, *w = y == nullptr ? nullptr : y + t * b.stride;
          extent unused = 0;
          summed.move(n, u, w, unused);
          sum = w == nullptr ? sum_of(sum, *u) : fused(*u, *w, sum);
        }
      total = first == 0 ? sum : sum_of(total, sum);
    }
    c[at] = total;
  }
};

// c[n, columns] is the sum of selection[t, n] b[t, columns] over the tokens that selected n, whose
// entries `lists` has sorted; a null b counts as 1.
template <class T>
struct selection_sums {
  sort_lists lists;
  selections_at<T> selections;
  rows_at<const T> b;
  T* c;
  extent columns, expert_stride, column_stride, block;

  FMOE_DEVICE void operator()(extent i) const {
    const extent n = i / columns, column = i % columns;
    extent row = lists.of_expert()[n];
    const extent end = n + 1 == lists.of.experts ? *lists.row_count() : lists.of_expert()[n + 1];
    T total = 0;
    while (row < end) {
      const extent in_block = lists.tokens()[row] / block;
      T sum = 0;
      for (; row < end && lists.tokens()[row] / block == in_block; ++row) {
        const extent token = lists.tokens()[row];
        const T value = value_of(selections.row(token, 0), n);
        sum = b.data == nullptr ? sum_of(sum, value) : fused(value, b.row(token)[column], sum);
      }
      total = sum_of(total, sum);
    }
    c[n * expert_stride + column * column_stride] = total;
  }

 private:
  FMOE_DEVICE static T value_of(const selection_row<T>& s, extent n) {
    for (index k = 0; k < s.count(); ++k)
      if (s.indices()[k] == n) return s.values()[k];
    return 0;
  }
};

}  // namespace fmoe::cuda
