// SPDX-License-Identifier: MIT
// Products, sums and permutations of small tensors by nested loops over any strides, a thread a
// number of the result. Each number is summed in the order of `summed`, as on the CPU.
#pragma once

#include <fmoe/backend/cuda/kernels/passes.hpp>
#include <fmoe/backend/cuda/kernels/rows.hpp>

namespace fmoe::cuda {

// One loop; strides in elements.
struct nest_loop {
  extent length, a, b, c;
};

template <class T>
struct nest_loops {
  static constexpr int most = 16;
  nest_loop of[most];
  int count = 0;
  extent places = 1;  // the product of the lengths

  void add(const nest_loop& loop) {
    of[count++] = loop;
    places *= loop.length;
  }

  // Moves the pointers to a place, which counts the last loop fastest. A null b stays null.
  FMOE_DEVICE void move(extent place, const T*& a, const T*& b, extent& c) const {
    for (int k = count; k-- > 0;) {
      const extent n = place % of[k].length;
      place /= of[k].length;
      a += n * of[k].a;
      if (b != nullptr) b += n * of[k].b;
      c += n * of[k].c;
    }
  }
  // The same for c alone.
  FMOE_DEVICE extent place_in_c(extent place) const {
    extent c = 0;
    for (int k = count; k-- > 0;) {
      c += place % of[k].length * of[k].c;
      place /= of[k].length;
    }
    return c;
  }
};

// c[t, out] is the sum over `summed` of a[t, ...] b[t, ...], then the passes. Without b the factor
// is 1; a copy keeps the sign of a 0.
template <class T>
struct nest_numbers {
  rows_at<const T> a{}, b{};
  rows_at<T> c{};
  nest_loops<T> out{}, summed{};
  bool is_copy = false;
  bool picks = false;  // in a group: a has the rows of tokens
  group_rows group{};
  passes<T> finish{};

  FMOE_DEVICE void operator()(extent i) const {
    const extent row = i / out.places;
    if (!group.has(row)) return;
    const extent expert = group.expert_of(row);
    const T* x = a.row(picks ? group.token_of(row) : row, expert);
    const T* y = b.data == nullptr ? nullptr : b.row(row, expert);
    extent at = 0;
    out.move(i % out.places, x, y, at);
    const T made = is_copy ? *x : sum(x, y);
    c.row(row)[at] = finish(made, row, at, expert);
  }

 private:
  FMOE_DEVICE T sum(const T* x, const T* y) const {
    T total = 0;
    for (extent n = 0; n < summed.places; ++n) {
      const T *u = x, *w = y;
      extent unused = 0;
      summed.move(n, u, w, unused);
      total = w == nullptr ? sum_of(total, *u) : fused(*u, *w, total);
    }
    return total;
  }
};

// Each row, then a 1.
template <class T>
struct append_numbers {
  rows_at<const T> a;
  rows_at<T> c;
  extent rows, columns;

  FMOE_DEVICE void operator()(extent i) const {
    const extent n = i % (columns + 1), r = i / (columns + 1) % rows,
                 token = i / (columns + 1) / rows;
    c.row(token)[r * (columns + 1) + n] = n == columns ? T(1) : a.row(token)[r * columns + n];
  }
};

}  // namespace fmoe::cuda
