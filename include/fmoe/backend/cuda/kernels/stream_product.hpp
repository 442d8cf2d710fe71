// SPDX-License-Identifier: MIT
// A product of few rows, which takes as long as its weights take to be read. Each weight is read
// once: a block of threads takes one block of the sum for 64 columns, so that many blocks read at
// the same time, and add_sums adds what they leave. Asynchronous copies keep Stages - 1 stages of
// weights under way, 24 KiB. A thread has two columns, and Rows rows; warps share the rows.
#pragma once

#include <fmoe/backend/cuda/kernels/operand_stages.hpp>

namespace fmoe::cuda {

template <class T, class S, unsigned Rows, unsigned Warps>
struct stream_product {
  static constexpr unsigned threads = 32 * Warps;
  static constexpr unsigned tile_rows = Rows * Warps, columns_each = 2,
                            tile_columns = 32 * columns_each;
  static constexpr unsigned terms = 8192 / (tile_columns * sizeof(T));
  static constexpr unsigned at_once = numbers_each<T>;
  static constexpr stage_shape stage{.threads = threads,
                                     .rows = tile_rows,
                                     .columns = tile_columns,
                                     .terms = terms,
                                     .slots = 4,
                                     .left_pitch = terms,
                                     .right_pitch = tile_columns,
                                     .has_zeros = false,
                                     .rights_at_once = 4};
  static constexpr extent shared_bytes = stage.template bytes<T, S>();

  product<T> of;

  FMOE_DEVICE extent blocks(extent row_tiles) const {
    return row_tiles * of.position_count * of.parts() * divide_up(of.columns, extent{tile_columns});
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    product_part part{};
    if (!part.find(of, b.block(), tile_rows, tile_columns)) return;  // a whole block
    operand_stages<T, S, stage, Block> stages(b, of, part);
    T sums[Rows][columns_each] = {};
    while (stages.has_more()) {
      stages.begin();
      multiply(b, stages, sums);
      if (stages.ends_block()) put(b, part, sums, stages.term() / of.sum_block);
      stages.next();
    }
  }

 private:
  FMOE_CALLS_BLOCK
  template <class Block, class Stages>
  FMOE_DEVICE static void multiply(Block& b, const Stages& stages, T (&sums)[Rows][columns_each]) {
    const unsigned column = b.thread() % 32 * columns_each, row = b.thread() / 32 * Rows;
    const unsigned count = stages.count();
    pack<float, columns_each> factors;
    if constexpr (is_scaled<S>) factors = stages.template scales<columns_each>(column);
    FMOE_UNROLL_BY(2)
    for (unsigned q = 0; q < count; q += at_once) {
      pack<T, at_once> x[Rows];
      FMOE_UNROLL
      for (unsigned m = 0; m < Rows; ++m) x[m] = stages.template left<at_once>(row + m, q);
      FMOE_UNROLL
      for (unsigned j = 0; j < at_once; ++j) {
        if (q + j >= count) continue;
        const pack<S, columns_each> stored = stages.template right<columns_each>(q + j, column);
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
