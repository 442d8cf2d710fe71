// SPDX-License-Identifier: MIT
// A row of a selection in device memory: the number of entries, their values, and their indices in
// ascending order.
#pragma once

#include <fmoe/backend/cuda/kernels/row_function.hpp>

namespace fmoe::cuda {

template <class T>
class selection_row {
 public:
  static constexpr extent header = 16 / sizeof(T);

  // Returns the elements that a row with room for `keep` entries takes.
  static constexpr extent size(extent keep) {
    return header + keep + divide_up(keep * sizeof(index), sizeof(T));
  }

  FMOE_DEVICE selection_row(T* row, extent keep) : row_(row), keep_(keep) {}

  FMOE_DEVICE index& count() const { return *reinterpret_cast<index*>(row_); }
  FMOE_DEVICE T* values() const { return row_ + header; }
  FMOE_DEVICE index* indices() const { return reinterpret_cast<index*>(row_ + header + keep_); }

  FMOE_DEVICE void add(T value, extent i) const {
    values()[count()] = value;
    indices()[count()++] = static_cast<index>(i);
  }

 private:
  T* row_;
  extent keep_;
};

// The selections of many tokens, each of some rows with room for `keep` entries.
template <class T>
struct selections_at {
  rows_at<T> of;
  extent keep;
  extent most = keep;  // entries that a top-k keeps

  FMOE_DEVICE selection_row<T> row(extent token, extent r) const {
    return {of.row(token) + r * selection_row<T>::size(keep), keep};
  }
};

// Do weights of 0 stand for entries that are kept, so that a score of 0 matters?
constexpr bool zeros_count(weighting w) { return w != weighting::score && w != weighting::relu; }

// Gives what is kept its scores, where it was ranked by other numbers. A thread makes one entry.
template <class T>
struct scores_of_kept {
  rows_at<const T> scores;
  selections_at<T> selections;
  extent rows, columns;

  FMOE_DEVICE void operator()(extent i) const {
    const extent entry = i % selections.keep, r = i / selections.keep % rows,
                 token = i / selections.keep / rows;
    const selection_row<T> s = selections.row(token, r);
    if (entry < s.count()) s.values()[entry] = scores.row(token)[r * columns + s.indices()[entry]];
  }
};

// Turns the kept scores of each row into weights, and leaves out those that are 0. `columns` are
// those of a whole row of scores; without them only kept scores count.
template <class T>
struct weigh_rows {
  selections_at<T> selections;
  rows_at<const T> scores;
  extent rows, columns;
  weighting weights;

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / rows, r = i % rows;
    const selection_row<T> s = selections.row(token, r);
    T* const values = s.values();
    const index count = s.count();
    if (weights == weighting::softmax) {
      const T top = greatest_of(values, count), whole = sum_of_exponentials(values, count, top);
      for (index k = 0; k < count; ++k)
        values[k] = quotient_of(exponential_of(values[k], top), whole);
    }
    if (weights == weighting::softmax_of_all && columns > 0) {
      const T* const row = scores.row(token) + r * columns;
      const T top = greatest_of(row, columns), whole = sum_of_exponentials(row, columns, top);
      for (index k = 0; k < count; ++k)
        values[k] = quotient_of(exponential_of(values[k], top), whole);
    }
    if (weights == weighting::normalized) {
      T sum = 0;
      for (index k = 0; k < count; ++k) sum = sum_of(sum, values[k]);
      for (index k = 0; k < count && sum != 0; ++k) values[k] = quotient_of(values[k], sum);
    }
    index kept = 0;
    for (index k = 0; k < count; ++k) {
      T value = values[k];
      if (weights == weighting::one) value = 1;
      if (weights == weighting::relu && value < 0) value = 0;
      if (value == 0) continue;
      values[kept] = value;
      s.indices()[kept++] = s.indices()[k];
    }
    s.count() = kept;
  }
};

// Each entry times the factor of its index; entries that become 0 are left out.
template <class T>
struct rescale_rows {
  selections_at<T> from, to;
  const T* factors;
  extent rows, table_row;

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / rows, r = i % rows;
    const selection_row<T> a = from.row(token, r), c = to.row(token, r);
    c.count() = 0;
    for (index k = 0; k < a.count(); ++k) {
      const T value = product_of(a.values()[k], factors[r * table_row + a.indices()[k]]);
      if (value != 0) c.add(value, a.indices()[k]);
    }
  }
};

// Each entry times a function of the product of x and the table's row of its index.
template <class T>
struct sample_rows {
  selections_at<T> from, to;
  rows_at<const T> x;
  const T* table;
  extent rows, depth, table_row;
  passes<T> finish;

  // A thread makes one entry.
  FMOE_DEVICE void operator()(extent i) const {
    const extent entry = i % from.keep, r = i / from.keep % rows, token = i / from.keep / rows;
    const selection_row<T> a = from.row(token, r), c = to.row(token, r);
    if (entry == 0) c.count() = a.count();
    if (entry >= a.count()) return;
    const T* const row = table + r * table_row + a.indices()[entry] * depth;
    T sum = 0;
    for (extent k = 0; k < depth; ++k) sum = fused(x.row(token)[k], row[k], sum);
    c.indices()[entry] = a.indices()[entry];
    c.values()[entry] = product_of(finish(sum, token, entry), a.values()[entry]);
  }
};

// One number of each kept entry. Behind the last one are values of 0 and indices of -1.
template <class T>
struct kept_numbers {
  selections_at<T> from;
  rows_at<T> c;
  extent rows, keep;
  kept_part what;

  FMOE_DEVICE void operator()(extent i) const {
    const extent entry = i % keep, r = i / keep % rows, token = i / keep / rows;
    const selection_row<T> a = from.row(token, r);
    const bool is_kept = entry < a.count();
    c.row(token)[r * keep + entry] = what == kept_part::value
                                         ? (is_kept ? a.values()[entry] : T(0))
                                         : (is_kept ? static_cast<T>(a.indices()[entry]) : T(-1));
  }
};

// A selection as dense rows; a thread makes one row.
template <class T>
struct expand_rows {
  selections_at<T> from;
  rows_at<T> c;
  extent rows, columns;

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / rows, r = i % rows;
    const selection_row<T> a = from.row(token, r);
    T* const row = c.row(token) + r * columns;
    for (extent n = 0; n < columns; ++n) row[n] = 0;
    for (index k = 0; k < a.count(); ++k) row[a.indices()[k]] = a.values()[k];
  }
};

// c[t, n] is the sum over the rows of a selection, and over their entries in order, of the value
// times the table's row; then the passes. A thread makes one number.
template <class T>
struct gather_rows {
  selections_at<T> from;
  const T* table;
  rows_at<T> c;
  extent rows, columns, table_row;
  passes<T> finish;

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / columns, n = i % columns;
    T sum = 0;
    for (extent r = 0; r < rows; ++r) {
      const selection_row<T> a = from.row(token, r);
      const T* const at = table + r * table_row + n;
      for (index k = 0; k < a.count(); ++k)
        sum = fused(a.values()[k], at[a.indices()[k] * columns], sum);
    }
    c.row(token)[n] = finish(sum, token, n);
  }
};

}  // namespace fmoe::cuda
