// SPDX-License-Identifier: MIT
// A sum over tokens of the products of two rows: c[i, j] is the sum of a[t, i] b[t, j], as the
// gradient of a weight is. It is token_sums for many numbers, tile by tile.
#pragma once

#include <fmoe/backend/cuda/kernels/product.hpp>
#include <fmoe/backend/cuda/kernels/token_parts.hpp>

namespace fmoe::cuda {

// A block of threads makes 64 by 64 numbers, and each of its threads 4 by 4. It takes one block of
// tokens, whose sums go to memory, or all of them.
template <class T>
struct token_product {
  static constexpr unsigned threads = 256, own = 4, tile = 64, terms = 16, slots = 3;
  static constexpr unsigned each = numbers_each<T>, side = terms * tile;
  static constexpr extent shared_bytes = 2 * slots * side * extent{sizeof(T)};

  // The last two loops of the result are those of i and j.
  token_sums<T> of;
  part_sums<T> to;  // null: one block of threads adds all
  bool aligned_a, aligned_b;

  FMOE_DEVICE extent rows() const { return of.out.of[of.out.count - 2].length; }
  FMOE_DEVICE extent columns() const { return of.out.of[of.out.count - 1].length; }
  FMOE_DEVICE extent matrices() const { return of.out.places / rows() / columns(); }
  extent blocks() const {
    return (to.sums == nullptr ? 1 : to.count) * matrices() * divide_up(rows(), extent{tile}) *
           divide_up(columns(), extent{tile});
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const auto left = b.template array<T>(slots * side), right = b.template array<T>(slots * side);
    const extent across = divide_up(columns(), extent{tile}),
                 down = divide_up(rows(), extent{tile});
    extent rest = b.block();
    const extent column = rest % across * tile;
    rest /= across;
    const extent row = rest % down * tile;
    rest /= down;
    const extent matrix = rest % matrices(), part = rest / matrices();
    const extent place = (matrix * rows() + row) * columns() + column;
    const T *x = of.a.data, *y = of.b.data;
    extent unused = 0;
    of.out.move(place, x, y, unused);

    const bool is_part = to.sums != nullptr;
    const extent first = is_part ? (to.first + part) * of.block : 0;
    const extent end = is_part && of.tokens - first > of.block ? first + of.block : of.tokens;
    const auto block_length = static_cast<index>(of.block);
    stages now{static_cast<index>(first), static_cast<index>(end), block_length};
    stages ahead = now;
    unsigned slot = 0, ahead_slot = 0;
    const source from{x, y, rows() - row, columns() - column};
    for (unsigned i = 0; i + 1 < slots; ++i) fetch(b, left, right, from, ahead, ahead_slot);

    const unsigned own_row = b.thread() / 16 * own, own_column = b.thread() % 16 * own;
    pack<T, own> sums[own] = {}, totals[own] = {};
    bool is_first = true;
    while (now.has_more()) {
      b.template wait<slots - 2>();
      b.sync();
      fetch(b, left, right, from, ahead, ahead_slot);
      const unsigned count = now.count();
      FMOE_UNROLL_BY(4)
      for (unsigned t = 0; t < count; ++t) {
        const unsigned at = slot * side + t * tile;
        const pack<T, own> u = b.template read<own>(left, at + own_row),
                           w = b.template read<own>(right, at + own_column);
        FMOE_UNROLL
        for (unsigned m = 0; m < own; ++m) FMOE_UNROLL
        for (unsigned n = 0; n < own; ++n) sums[m].of[n] = fused(u.of[m], w.of[n], sums[m].of[n]);
      }
      if (now.ends_block()) {
        FMOE_UNROLL
        for (unsigned m = 0; m < own; ++m) FMOE_UNROLL
        for (unsigned n = 0; n < own; ++n) {
          T &total = totals[m].of[n], &sum = sums[m].of[n];
          total = is_first ? sum : sum_of(total, sum);
          sum = 0;
        }
        is_first = false;
      }
      now.next(block_length);
      slot = (slot + 1) % slots;
    }
    T* const sums_at = is_part ? to.of(part, of.out.places) : nullptr;
    FMOE_UNROLL
    for (unsigned m = 0; m < own; ++m) FMOE_UNROLL
    for (unsigned n = 0; n < own; ++n) {
      if (row + own_row + m >= rows() || column + own_column + n >= columns()) continue;
      const extent at = place + (own_row + m) * columns() + own_column + n;
      (is_part ? sums_at[at] : of.c[of.out.place_in_c(at)]) = totals[m].of[n];
    }
  }

 private:
  using stages = stages_of_sum<terms>;

  // The first numbers of a token that the tile reads, and how many there are.
  struct source {
    const T *left, *right;
    extent rows, columns;
  };

  // Begins to copy the tokens of a stage, and ends a group of copies, even if nothing is left.
  FMOE_CALLS_BLOCK
  template <class Block, class Array>
  FMOE_DEVICE void fetch(Block& b, const Array& left, const Array& right, const source& from,
                         stages& ahead, unsigned& slot) const {
    if (ahead.has_more()) {
      const unsigned at = slot * side, count = ahead.count();
      const T* const x = from.left + ahead.term * of.a.stride;
      const T* const y = from.right + ahead.term * of.b.stride;
      if (aligned_a) copy_rows<each>(b, left, at, x, of.a.stride, count, from.rows);
      else copy_rows<1>(b, left, at, x, of.a.stride, count, from.rows);
      if (aligned_b) copy_rows<each>(b, right, at, y, of.b.stride, count, from.columns);
      else copy_rows<1>(b, right, at, y, of.b.stride, count, from.columns);
      ahead.next(static_cast<index>(of.block));
    }
    b.commit();
    slot = (slot + 1) % slots;
  }

  // Begins to copy `tile` numbers of each of `count` rows, N at a time, and zeros behind the last
  // number.
  FMOE_CALLS_BLOCK
  template <unsigned N, class Block, class Array>
  FMOE_DEVICE static void copy_rows(Block& b, const Array& side, unsigned at, const T* from,
                                    extent stride, unsigned count, extent numbers) {
    for (unsigned i = b.thread(); i < count * (tile / N); i += threads) {
      const unsigned t = i / (tile / N), n = i % (tile / N) * N;
      const unsigned there = n >= numbers ? 0 : numbers - n < N ? unsigned(numbers - n) : N;
      b.template copy<N>(side, at + t * tile + n, there == 0 ? from : from + t * stride + n, there);
    }
  }
};

}  // namespace fmoe::cuda
