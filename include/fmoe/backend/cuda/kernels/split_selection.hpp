// SPDX-License-Identifier: MIT
// A selection from long rows by many blocks of threads: each finds the greatest numbers of a part
// of a row, and one selects among these. Candidates stand in the order of their places, so equal
// numbers are selected as in the whole row.
#pragma once

#include <fmoe/backend/cuda/kernels/register_selector.hpp>

namespace fmoe::cuda {

// How a row is cut. Every part but the last has at least `keep` numbers.
struct row_parts {
  extent columns, each, keep;

  constexpr extent count() const { return divide_up(columns, each); }
  constexpr extent length(extent part) const {
    return part + 1 < count() ? each : columns - part * each;
  }
  // Candidates of a row, and those of the parts before one.
  constexpr extent before(extent part) const { return part * keep; }
  constexpr extent candidates() const {
    const extent last = length(count() - 1);
    return before(count() - 1) + (last < keep ? last : keep);
  }
};

// The candidates of rows, each with its value and its place in the row.
template <class T>
struct candidate_rows {
  T* values;
  index* places;

  // Returns the elements that so many rows take.
  static constexpr extent size(extent rows, extent of_row) {
    return rows * of_row + divide_up(rows * of_row * sizeof(index), sizeof(T));
  }
  static candidate_rows in(T* memory, extent rows, extent of_row) {
    return {memory, reinterpret_cast<index*>(memory + rows * of_row)};
  }
};

// A block finds the candidates of a part.
template <class T, class How>
struct select_part_kernel {
  static constexpr unsigned threads = How::threads, blocks_each = How::blocks_each;
  static constexpr extent shared_bytes = How::template shared_bytes<T>;

  rows_at<const T> a;
  candidate_rows<T> to;
  extent rows;
  row_parts parts;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent part = b.block() % parts.count(), row = b.block() / parts.count();
    const extent first = part * parts.each;
    const T* const x = a.row(row / rows) + row % rows * parts.columns + first;
    const extent at = row * parts.candidates() + parts.before(part);
    typename How::template selector<T, Block> select(b);
    select.greatest(
        parts.length(part), parts.keep, [&](extent i) { return x[i]; }, [](T) { return true; },
        [&](extent i, index place) {
          to.values[at + place] = x[i];
          to.places[at + place] = static_cast<index>(first + i);
        });
  }
};

// A block selects among the candidates of a row.
template <class T, class How>
struct select_candidates_kernel {
  static constexpr unsigned threads = How::threads, blocks_each = How::blocks_each;
  static constexpr extent shared_bytes = How::template shared_bytes<T>;

  candidate_rows<T> from;
  selections_at<T> to;
  extent rows, candidates;  // of a token, of a row
  bool takes_zeros;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const T* const x = from.values + b.block() * candidates;
    const index* const places = from.places + b.block() * candidates;
    const selection_row<T> s = to.row(b.block() / rows, b.block() % rows);
    typename How::template selector<T, Block> select(b);
    const index count = select.greatest(
        candidates, to.keep, [&](extent i) { return x[i]; },
        [&](T v) { return takes_zeros || v != 0; },
        [&](extent i, index place) {
          s.values()[place] = x[i];
          s.indices()[place] = places[i];
        });
    if (b.thread() == 0) s.count() = count;
  }
};

}  // namespace fmoe::cuda
