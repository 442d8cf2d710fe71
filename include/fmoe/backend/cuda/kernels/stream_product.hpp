// SPDX-License-Identifier: MIT
// A product of few rows, which takes as long as its weights take to be read. Each weight is read
// once: a block of threads takes one block of the sum for 64 columns, so that many blocks read at
// the same time, and add_sums adds what they leave. Asynchronous copies keep Stages - 1 stages of
// weights under way, 24 KiB. A thread has two columns, and Rows rows; warps share the rows.
#pragma once

#include <fmoe/backend/cuda/kernels/product.hpp>

namespace fmoe::cuda {

template <class T, class S, unsigned Rows, unsigned Warps>
struct stream_product {
  static constexpr unsigned threads = 32 * Warps;
  static constexpr unsigned tile_rows = Rows * Warps, columns_each = 2,
                            tile_columns = 32 * columns_each;
  static constexpr unsigned terms = 8192 / (tile_columns * sizeof(T)), stages = 4;
  static constexpr unsigned at_once = numbers_each<T>;
  static constexpr unsigned left_size = tile_rows * terms, right_size = terms * tile_columns;
  static constexpr unsigned scales_size = is_scaled<S> ? tile_columns : 0;
  static constexpr extent shared_bytes =
      stages * (left_size * extent{sizeof(T)} + right_size * extent{sizeof(S)} +
                scales_size * extent{sizeof(float)});

  product<T> of;

  FMOE_DEVICE extent blocks(extent row_tiles) const {
    return row_tiles * of.position_count * of.parts() * divide_up(of.columns, extent{tile_columns});
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    product_part part{};
    if (!part.find(of, b.block(), tile_rows, tile_columns)) return;  // a whole block
    const auto left = b.template array<T>(stages * left_size);
    const auto right = b.template array<S>(stages * right_size);
    const auto scales = b.template array<float>(stages * scales_size);
    const source from{part.left(of), part.template right<S>(of), part.end - part.first,
                      of.pitch - part.column, is_scaled<S> ? part.scales(of) : nullptr};
    stages_of_sum<terms> ahead{part.first_term, part.end_term, of.sum_block}, now = ahead;
    unsigned ahead_slot = 0, slot = 0;
    for (unsigned s = 0; s + 1 < stages; ++s)
      fetch(b, from, left, right, scales, ahead, ahead_slot);

    T sums[Rows][columns_each] = {};
    while (now.has_more()) {
      b.template wait<stages - 2>();
      b.sync();
      fetch(b, from, left, right, scales, ahead, ahead_slot);
      multiply(b, left, right, scales, slot, now.count(), sums);
      if (now.ends_block()) put(b, part, sums, now.term / of.sum_block);
      now.next(of.sum_block);
      slot = (slot + 1) % stages;
    }
  }

 private:
  struct source {
    const T* left;
    const S* right;
    index rows, columns;  // that may be read
    const float* scales;
  };

  // Begins to copy the terms of a stage, and ends a group of copies, even if nothing is left.
  FMOE_CALLS_BLOCK
  template <class Block, class Left, class Right, class Scales>
  FMOE_DEVICE void fetch(Block& b, const source& from, const Left& left, const Right& right,
                         const Scales& scales, stages_of_sum<terms>& stage, unsigned& slot) const {
    if (stage.has_more()) {
      const unsigned count = stage.count();
      constexpr unsigned each = numbers_each<S>, of_row = tile_columns / each;
      FMOE_UNROLL_BY(4)
      for (unsigned i = b.thread(); i < count * of_row; i += threads) {
        const unsigned term = i / of_row, n = i % of_row * each;
        const bool is_inside = n < from.columns;
        const S* const at = from.right + extent{stage.term + term} * of.pitch + n;
        b.template copy<each>(right, slot * right_size + term * tile_columns + n,
                              is_inside ? at : from.right, is_inside ? each : 0);
      }
      if (of.aligned_a) fetch_rows<at_once>(b, from, left, stage.term, count, slot);
      else fetch_rows<1>(b, from, left, stage.term, count, slot);
      if constexpr (is_scaled<S>) {
        constexpr unsigned at_once = numbers_each<float>;
        for (unsigned n = b.thread() * at_once; n < tile_columns; n += threads * at_once) {
          const bool is_inside = n + (of.pitch - of.scale_pitch) < from.columns;
          const float* const at =
              from.scales + extent{stage.term / scale_group} * of.scale_pitch + n;
          b.template copy<at_once>(scales, slot * tile_columns + n, is_inside ? at : from.scales,
                                   is_inside ? at_once : 0);
        }
      }
      stage.next(of.sum_block);
    }
    b.commit();
    slot = (slot + 1) % stages;
  }

  FMOE_CALLS_BLOCK
  template <unsigned Each, class Block, class Left>
  FMOE_DEVICE void fetch_rows(Block& b, const source& from, const Left& left, index first_term,
                              unsigned count, unsigned slot) const {
    constexpr unsigned of_row = terms / Each;
    FMOE_UNROLL_BY(2)
    for (unsigned i = b.thread(); i < tile_rows * of_row; i += threads) {
      const unsigned row = i / of_row, term = i % of_row * Each;
      const unsigned rest = term < count && row < from.rows ? count - term : 0;
      const T* const at =
          from.left + extent{row} * static_cast<index>(of.a.stride) + (first_term + term);
      b.template copy<Each>(left, slot * left_size + row * terms + term, rest != 0 ? at : from.left,
                            rest < Each ? rest : Each);
    }
  }

  FMOE_CALLS_BLOCK
  template <class Block, class Left, class Right, class Scales>
  FMOE_DEVICE static void multiply(Block& b, const Left& left, const Right& right,
                                   const Scales& scales, unsigned slot, unsigned count,
                                   T (&sums)[Rows][columns_each]) {
    const unsigned column = b.thread() % 32 * columns_each, row = b.thread() / 32 * Rows;
    pack<float, columns_each> factors;
    if constexpr (is_scaled<S>)
      factors = b.template read<columns_each>(scales, slot * tile_columns + column);
    FMOE_UNROLL_BY(2)
    for (unsigned q = 0; q < count; q += at_once) {
      pack<T, at_once> x[Rows];
      FMOE_UNROLL
      for (unsigned m = 0; m < Rows; ++m)
        x[m] = b.template read<at_once>(left, slot * left_size + (row + m) * terms + q);
      FMOE_UNROLL
      for (unsigned j = 0; j < at_once; ++j) {
        if (q + j >= count) continue;
        const pack<S, columns_each> stored = b.template read<columns_each>(
            right, slot * right_size + (q + j) * tile_columns + column);
        pack<T, columns_each> y;
        FMOE_UNROLL
        for (unsigned n = 0; n < columns_each; ++n) {
          y.of[n] = widened(stored.of[n]);
          if constexpr (is_scaled<S>) y.of[n] = product_of(y.of[n], factors.of[n]);
        }
        FMOE_UNROLL
        for (unsigned m = 0; m < Rows; ++m) FMOE_UNROLL
        for (unsigned n = 0; n < columns_each; ++n)
          sums[m][n] = fused(x[m].of[j], y.of[n], sums[m][n]);
      }
    }
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void put(Block& b, const product_part& part, T (&sums)[Rows][columns_each],
                       index block) const {
    const index column = part.column + b.thread() % 32 * columns_each;
    const index row = part.first + b.thread() / 32 * Rows;
    T* const to = of.sums_of(block, part.position, row) + column;
    FMOE_UNROLL
    for (unsigned m = 0; m < Rows; ++m) FMOE_UNROLL
    for (unsigned n = 0; n < columns_each; ++n) {
      if (row + m < part.end && column + n < of.columns) to[m * of.sum_pitch() + n] = sums[m][n];
      sums[m][n] = 0;
    }
  }
};

}  // namespace fmoe::cuda
