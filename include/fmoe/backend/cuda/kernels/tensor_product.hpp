// SPDX-License-Identifier: MIT
// A product on tensor cores. Numbers are rounded to tf32 or bf16 on their way into registers, and
// their products are summed in float. Blocks of terms lie at fixed places and are added in order.
// So the bits of an element depend on its row and column, and on no tile.
#pragma once

#include <fmoe/backend/cuda/kernels/narrow_number.hpp>
#include <fmoe/backend/cuda/kernels/operand_stages.hpp>
#include <fmoe/backend/cuda/kernels/product_choice.hpp>
#include <fmoe/backend/cuda/kernels/tensor_tile.hpp>

namespace fmoe::cuda {

// The parts of operands that one lane has, and their product.
template <math How>
struct tensor_part {
  static constexpr bool is_split = How == math::tf32x3;  // numbers are sums of two
  static constexpr bool has_pairs = How == math::bf16;   // of neighbours, in a register
  static constexpr unsigned depth = has_pairs ? 16 : 8;

  template <unsigned Count>
  struct part {
    std::uint32_t numbers[Count], small[is_split ? Count : 1];

    // Register i is of row i % rows, and of(row, term) reads a number. `term` is the lane's.
    template <class Of>
    FMOE_DEVICE void read(unsigned term, unsigned rows, const Of& of) {
      for (unsigned i = 0; i < Count; ++i) {
        const unsigned row = i % rows, further = i / rows * (depth / 2);
        if constexpr (has_pairs) {
          const unsigned first = 2 * term + further;
          numbers[i] = to_bf16_pair(of(row, first), of(row, first + 1));
        } else if constexpr (is_split) {
          const tf32_pair x(of(row, term + further));
          numbers[i] = x.big;
          small[i] = x.small;
        } else {
          numbers[i] = nearly_tf32(of(row, term + further));
        }
      }
    }
  };

  // The product of the two small parts is lost.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE static void add(const Block& b, float (&d)[4], const part<4>& x, const part<2>& y) {
    if constexpr (has_pairs) return b.mma_bf16(d, x.numbers, y.numbers);
    if constexpr (is_split) {
      b.mma_tf32(d, x.small, y.numbers);
      b.mma_tf32(d, x.numbers, y.small);
    }
    if constexpr (!has_pairs) b.mma_tf32(d, x.numbers, y.numbers);
  }
};

// A block makes a tile of Rows rows by 128 columns. Operands come to shared memory 32 terms at a
// time, two stages ahead. Where several blocks share a sum, add_sums adds what they leave: blocks
// of `sum_block` terms, which are a stage in tf32x3. So no bit depends on how a sum is shared.
template <math How, unsigned Rows, class S = float>
struct tensor_product {
  using part = tensor_part<How>;
  static constexpr bool needs_registers = Rows > 64 ||
                                          (Rows > 16 && (How == math::tf32x3 || is_scaled<S>));
  static constexpr bool is_long_before_sm_90 = Rows == 64 && How == math::bf16;
  static constexpr unsigned threads = 256, lanes = 32, blocks_each = needs_registers ? 1 : 2;
  static constexpr unsigned tile_rows = Rows, tile_columns = tensor_tile_columns;
  // Rows in shared memory have some room behind them, so that the lanes of a warp read other banks.
  static constexpr stage_shape stage{.threads = threads,
                                     .rows = tile_rows,
                                     .columns = tile_columns,
                                     .terms = tensor_stage,
                                     .slots = 3,
                                     .left_pitch = tensor_stage + (part::has_pairs ? 8 : 4),
                                     .right_pitch = tile_columns + 8,
                                     .has_zeros = true,
                                     .rights_at_once = 4};
  static constexpr extent shared_bytes = stage.template bytes<float, S>();
  // The tile of a warp.
  static constexpr unsigned row_warps = Rows > 16 ? 2 : 1, column_warps = 8 / row_warps;
  static constexpr unsigned own_rows = Rows / row_warps, own_columns = tile_columns / column_warps;
  static constexpr unsigned row_parts = own_rows / 16, column_parts = own_columns / 8;

  product<float> of;

  FMOE_DEVICE extent blocks(extent row_tiles) const {
    return row_tiles * of.position_count * of.parts() * divide_up(of.columns, extent{tile_columns});
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    product_part tile{};
    if (!tile.find(of, b.block(), tile_rows, tile_columns)) return;  // a whole block
    const unsigned lane = b.thread() % lanes, warp = b.thread() / lanes;
    const unsigned own_row = warp / column_warps * own_rows,
                   own_column = warp % column_warps * own_columns;
    tensor_tile<row_parts, column_parts> own(of, tile, own_row, own_column, lane);
    operand_stages<float, S, stage, Block> stages(b, of, tile);
    while (stages.has_more()) {
      stages.begin();
      FMOE_UNROLL_BY(part::has_pairs ? 1 : 2)
      for (unsigned k = 0; k < tensor_stage; k += part::depth) {
        typename part::template part<2> y[column_parts];
        FMOE_UNROLL
        for (unsigned n = 0; n < column_parts; ++n)
          y[n].read(lane % 4, 1, [&](unsigned, unsigned term) {
            const unsigned c = own_column + 8 * n + lane / 4;
            const S stored = stages.right(k + term, c);
            if constexpr (is_scaled<S>) return product_of(widened(stored), stages.scale(c));
            else if constexpr (part::has_pairs && std::is_same_v<S, bf16>) return stored;
            else return widened(stored);
          });
        FMOE_UNROLL
        for (unsigned m = 0; m < row_parts; ++m) {
          typename part::template part<4> x;
          x.read(lane % 4, 2, [&](unsigned row, unsigned term) -> float {
            return stages.left(own_row + 16 * m + lane / 4 + 8 * row, k + term);
          });
          FMOE_UNROLL
          for (unsigned n = 0; n < column_parts; ++n) part::add(b, own.sums[m][n], x, y[n]);
        }
      }
      if (stages.ends_block() || (adds_stages<How> && own.is_whole())) {
        own.end_block(stages.term());
        own.clear_sums();
      }
      stages.next();
    }
    stages.end();
    own.finish();
  }
};

}  // namespace fmoe::cuda
