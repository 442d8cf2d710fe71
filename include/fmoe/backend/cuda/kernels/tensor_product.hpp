// SPDX-License-Identifier: MIT
// A product on tensor cores. Numbers are rounded to tf32 or bf16 on their way into registers, and
// their products are summed in float. Blocks of terms lie at fixed places and are added in order.
// So the bits of an element depend on its row and column, and on no tile.
#pragma once

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/kernels/narrow_number.hpp>
#include <fmoe/backend/cuda/kernels/product.hpp>

namespace fmoe::cuda {

// The parts of operands that one lane has, and their product.
template <math How>
struct tensor_part;

template <>
struct tensor_part<math::tf32> {
  static constexpr unsigned depth = 8;

  template <unsigned Count>
  struct part {
    std::uint32_t numbers[Count];

    // Number i is that of term 4 (i / rows) + `term`; of(i, term) reads it.
    template <class Of>
    FMOE_DEVICE void read(unsigned term, unsigned rows, const Of& of) {
      for (unsigned i = 0; i < Count; ++i) numbers[i] = to_tf32(of(i % rows, term + i / rows * 4));
    }
  };
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE static void add(const Block& b, float (&d)[4], const part<4>& x, const part<2>& y) {
    b.mma_tf32(d, x.numbers, y.numbers);
  }
};

template <>
struct tensor_part<math::tf32x3> {
  static constexpr unsigned depth = 8;

  template <unsigned Count>
  struct part {
    std::uint32_t big[Count], small[Count];

    template <class Of>
    FMOE_DEVICE void read(unsigned term, unsigned rows, const Of& of) {
      for (unsigned i = 0; i < Count; ++i) {
        const tf32_pair x(of(i % rows, term + i / rows * 4));
        big[i] = x.big;
        small[i] = x.small;
      }
    }
  };
  // The product of the two small parts is lost.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE static void add(const Block& b, float (&d)[4], const part<4>& x, const part<2>& y) {
    b.mma_tf32(d, x.small, y.big);
    b.mma_tf32(d, x.big, y.small);
    b.mma_tf32(d, x.big, y.big);
  }
};

template <>
struct tensor_part<math::bf16> {
  static constexpr unsigned depth = 16;

  template <unsigned Count>
  struct part {
    std::uint32_t pairs[Count];

    template <class Of>
    FMOE_DEVICE void read(unsigned term, unsigned rows, const Of& of) {
      for (unsigned i = 0; i < Count; ++i) {
        const unsigned row = i % rows, first = 2 * term + i / rows * 8;
        pairs[i] = to_bf16_pair(of(row, first), of(row, first + 1));
      }
    }
  };
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE static void add(const Block& b, float (&d)[4], const part<4>& x, const part<2>& y) {
    b.mma_bf16(d, x.pairs, y.pairs);
  }
};

// A block makes a tile of Rows rows by 128 columns. Operands come to shared memory 32 terms at a
// time, two stages ahead.
template <math How, unsigned Rows, class S = float>
struct tensor_product {
  using part = tensor_part<How>;
  static constexpr bool needs_registers = Rows > 64 ||
                                          (Rows > 16 && (How == math::tf32x3 || is_scaled<S>));
  static constexpr unsigned threads = 256, lanes = 32, blocks_each = needs_registers ? 1 : 2;
  static constexpr unsigned tile_rows = Rows, tile_columns = 128, depth_each = 32, slots = 3;
  // Rows in shared memory have some room behind them, so that the lanes of a warp read other banks.
  static constexpr unsigned left_pitch = depth_each + 4, right_pitch = tile_columns + 8;
  static constexpr unsigned left_size = tile_rows * left_pitch,
                            right_size = depth_each * right_pitch;
  // A stage has the weights of one scale.
  static constexpr unsigned scales_size = is_scaled<S> ? tile_columns : 0;
  static_assert(depth_each == scale_group);
  static constexpr extent shared_bytes =
      slots * (left_size * extent{sizeof(float)} + right_size * extent{sizeof(S)} +
               scales_size * extent{sizeof(float)});
  // The tile of a warp.
  static constexpr unsigned row_warps = Rows > 16 ? 2 : 1, column_warps = 8 / row_warps;
  static constexpr unsigned own_rows = Rows / row_warps, own_columns = tile_columns / column_warps;
  static constexpr unsigned row_parts = own_rows / 16, column_parts = own_columns / 8;

  // Tensor cores may cut off where float rounds: sums that shall be as precise as those of float
  // are short ones.
  static constexpr bool adds_stages = How == math::tf32x3;

  product<float> of;

  FMOE_DEVICE extent blocks(extent row_tiles) const {
    return row_tiles * of.position_count * divide_up(of.columns, extent{tile_columns});
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    product_part tile{};
    if (!tile.find(of, b.block(), tile_rows, tile_columns)) return;  // a whole block
    const source from{tile.left(of), tile.template right<S>(of), tile.end - tile.first,
                      of.pitch - tile.column, is_scaled<S> ? tile.scales(of) : nullptr};
    const auto left = b.template array<float>(slots * left_size);
    const auto right = b.template array<S>(slots * right_size);
    const auto scales = b.template array<float>(slots * scales_size);
    const unsigned lane = b.thread() % lanes, warp = b.thread() / lanes;
    const unsigned own_row = warp / column_warps * own_rows,
                   own_column = warp % column_warps * own_columns;
    float sums[row_parts][column_parts][4] = {}, totals[row_parts][column_parts][4] = {};

    const auto each_own = [&](const auto& f) {
      FMOE_UNROLL
      for (unsigned m = 0; m < row_parts; ++m) {
        FMOE_UNROLL
        for (unsigned n = 0; n < column_parts; ++n) {
          FMOE_UNROLL
          for (unsigned i = 0; i < 4; ++i) {
            const index row = tile.first + own_row + 16 * m + lane / 4 + i / 2 * 8;
            const index c = tile.column + own_column + 8 * n + lane % 4 * 2 + i % 2;
            f(totals[m][n][i], sums[m][n][i], row, c);
          }
        }
      }
    };
    const auto in_c = [&](index row, index c) { return row < tile.end && c < of.columns; };
    const extent at_c = of.positions[tile.position].c;
    if (of.accumulate)
      each_own([&](float& total, float, index row, index c) {
        if (in_c(row, c)) total = of.c.row(row)[at_c + c];
      });
    bool is_first = !of.accumulate;

    stages_of_sum<depth_each> ahead{0, of.depth, of.sum_block}, now = ahead;
    unsigned ahead_slot = 0, slot = 0;
    for (unsigned s = 0; s + 1 < slots; ++s) fetch(b, from, left, right, scales, ahead, ahead_slot);
    while (now.has_more()) {
      b.template wait<slots - 2>();
      b.sync();
      fetch(b, from, left, right, scales, ahead, ahead_slot);
      const unsigned l = slot * left_size, r = slot * right_size, count = now.count();
      for (unsigned k = 0; k < count; k += part::depth) {
        typename part::template part<2> y[column_parts];
        FMOE_UNROLL
        for (unsigned n = 0; n < column_parts; ++n)
          y[n].read(lane % 4, 1, [&](unsigned, unsigned term) -> float {
            const unsigned c = own_column + 8 * n + lane / 4;
            const float w = read(right, r + (k + term) * right_pitch + c);
            if constexpr (is_scaled<S>) return product_of(w, read(scales, slot * tile_columns + c));
            else return w;
          });
        FMOE_UNROLL
        for (unsigned m = 0; m < row_parts; ++m) {
          typename part::template part<4> x;
          x.read(lane % 4, 2, [&](unsigned row, unsigned term) -> float {
            return read(left, l + (own_row + 16 * m + lane / 4 + 8 * row) * left_pitch + k + term);
          });
          FMOE_UNROLL
          for (unsigned n = 0; n < column_parts; ++n) part::add(b, sums[m][n], x, y[n]);
        }
      }
      if (adds_stages || now.ends_block()) {
        each_own([&](float& total, float& sum, index, index) {
          total = is_first ? sum : sum_of(total, sum);
          sum = 0;
        });
        is_first = false;
      }
      now.next(of.sum_block);
      slot = after(slot);
    }
    b.template wait<0>();
    const extent expert = of.group.expert_of(tile.first);
    each_own([&](float total, float, index row, index c) {
      if (in_c(row, c)) of.c.row(row)[at_c + c] = of.finish(total, row, at_c + c, expert);
    });
  }

 private:
  using stages = stages_of_sum<depth_each>;

  // The tile's first row and column, and what is inside of the operands.
  struct source {
    const float* left;
    const S* right;
    index rows, columns;
    const float* scales;
  };

  FMOE_CALLS_BLOCK
  template <class Array>
  FMOE_DEVICE static float read(const Array& shared, unsigned i) {
    return widened(shared[i]);
  }

  FMOE_DEVICE static unsigned after(unsigned slot) { return slot + 1 == slots ? 0 : slot + 1; }

  // Begins to copy the terms of a stage, and zeros around them, and ends a group of copies, even if
  // nothing is left.
  FMOE_CALLS_BLOCK
  template <class Block, class Left, class Right, class Scales>
  FMOE_DEVICE void fetch(Block& b, const source& from, const Left& left, const Right& right,
                         const Scales& scales, stages& stage, unsigned& slot) const {
    if (stage.has_more()) {
      const unsigned count = stage.count();
      if (of.aligned_a) fetch_rows<numbers_each<float>>(b, from, left, stage.term, count, slot);
      else fetch_rows<1>(b, from, left, stage.term, count, slot);
      constexpr unsigned each = numbers_each<S>, of_row = tile_columns / each;
      for (unsigned i = b.thread(); i < depth_each * of_row; i += threads) {
        const unsigned term = i / of_row, n = i % of_row * each;
        const bool is_inside = term < count && n < from.columns;
        const S* const at = from.right + extent{stage.term + term} * of.pitch + n;
        b.template copy<each>(right, slot * right_size + term * right_pitch + n,
                              is_inside ? at : from.right, is_inside ? each : 0);
      }
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
    slot = after(slot);
  }

  FMOE_CALLS_BLOCK
  template <unsigned Each, class Block, class Left>
  FMOE_DEVICE void fetch_rows(Block& b, const source& from, const Left& left, index first_term,
                              unsigned count, unsigned slot) const {
    constexpr unsigned of_row = depth_each / Each;
    for (unsigned i = b.thread(); i < tile_rows * of_row; i += threads) {
      const unsigned row = i / of_row, term = i % of_row * Each;
      const unsigned rest = term < count && row < from.rows ? count - term : 0;
      const float* const at =
          from.left + extent{row} * static_cast<index>(of.a.stride) + (first_term + term);
      b.template copy<Each>(left, slot * left_size + row * left_pitch + term,
                            rest != 0 ? at : from.left, rest < Each ? rest : Each);
    }
  }
};

}  // namespace fmoe::cuda
