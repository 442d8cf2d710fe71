// SPDX-License-Identifier: MIT
// c[rows, columns] (+)= a[rows, depth] w[depth, columns], then the passes, on tensor cores. Numbers
// are rounded to tf32 or bf16 on their way into registers, and products are summed in float. As in
// gemm.hpp an element is the sum of blocks of terms at fixed places, added in order. So its bits
// depend on its row and column, and on no tile.
#pragma once

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/kernels/gemm.hpp>
#include <fmoe/backend/cuda/kernels/narrow_number.hpp>

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
// time, two slabs ahead.
template <math How, unsigned Rows>
struct tensor_kernel {
  using part = tensor_part<How>;
  static constexpr unsigned threads = 256, lanes = 32, blocks_an_sm = Rows > 64 ? 1 : 2;
  static constexpr unsigned tile_rows = Rows, tile_columns = 128, depth_each = 32, stages = 3;
  // Rows in shared memory have some room behind them, so that the lanes of a warp read other banks.
  static constexpr unsigned left_stride = depth_each + 4, right_stride = tile_columns + 8;
  static constexpr unsigned left_size = tile_rows * left_stride,
                            right_size = depth_each * right_stride;
  static constexpr extent shared_bytes = stages * (left_size + right_size) * sizeof(float);
  // The tile of a warp.
  static constexpr unsigned row_warps = Rows > 16 ? 2 : 1, column_warps = 8 / row_warps;
  static constexpr unsigned own_rows = Rows / row_warps, own_columns = tile_columns / column_warps;
  static constexpr unsigned row_parts = own_rows / 16, column_parts = own_columns / 8;

  // Tensor cores may cut off where float rounds: sums that shall be as precise as those of float
  // are short ones.
  static constexpr bool adds_slabs = How == math::tf32x3;

  gemm_kernel<float, 4> of;

  FMOE_DEVICE extent blocks(extent row_tiles) const {
    return row_tiles * of.position_count * divide_up(of.columns, extent{tile_columns});
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent column_tiles = divide_up(of.columns, extent{tile_columns});
    const extent tile = b.block() / column_tiles / of.position_count;
    const gemm_position at = of.positions[b.block() / column_tiles % of.position_count];
    const group_tiles& tiles = of.tiles;
    if (tiles.count != nullptr && tile >= *tiles.count) return;  // a whole block
    const extent first = tiles.count == nullptr ? tile * tile_rows : tiles.first[tile];
    const extent end = tiles.count == nullptr ? of.rows : tiles.end[tile];
    const extent expert = of.group.expert_of(first);
    const extent column = b.block() % column_tiles * tile_columns;
    const source from{
        of.a.row(first) + at.a,
        of.weights + (at.weight + expert * of.expert_weights) * of.depth * of.columns + column,
        least(end - first, tile_rows), least(of.columns - column, tile_columns)};

    const auto left = b.template array<float>(stages * left_size);
    const auto right = b.template array<float>(stages * right_size);
    const unsigned lane = b.thread() % lanes, warp = b.thread() / lanes;
    const unsigned own_row = warp / column_warps * own_rows,
                   own_column = warp % column_warps * own_columns;
    float sums[row_parts][column_parts][4] = {}, totals[row_parts][column_parts][4] = {};

    const auto each_own = [&](const auto& f) {
      unrolled<row_parts>([&](unsigned m) {
        unrolled<column_parts>([&](unsigned n) {
          unrolled<4>([&](unsigned i) {
            const extent row = own_row + 16 * m + lane / 4 + i / 2 * 8,
                         c = own_column + 8 * n + lane % 4 * 2 + i % 2;
            f(totals[m][n][i], sums[m][n][i], row, c);
          });
        });
      });
    };
    const auto in_c = [&](extent row, extent c) { return row < from.rows && c < from.columns; };
    const auto place = [&](extent row, extent c) -> float& {
      return of.c.row(first + row)[at.c + column + c];
    };
    if (of.accumulate)
      each_own([&](float& total, float, extent row, extent c) {
        if (in_c(row, c)) total = place(row, c);
      });
    bool is_first = !of.accumulate;

    const extent count = slabs();
    for (unsigned s = 0; s + 1 < stages; ++s) begin_slab(b, from, s, count, left, right);
    for (extent s = 0; s < count; ++s) {
      b.wait(stages - 2);
      b.sync();
      begin_slab(b, from, s + stages - 1, count, left, right);
      const slab_of_terms now = slab(s);
      const unsigned l = static_cast<unsigned>(s % stages) * left_size,
                     r = static_cast<unsigned>(s % stages) * right_size;
      for (unsigned k = 0; k < now.terms; k += part::depth) {
        typename part::template part<2> y[column_parts];
        unrolled<column_parts>([&](unsigned n) {
          y[n].read(lane % 4, 1, [&](unsigned, unsigned term) -> float {
            return read(right, r + (k + term) * right_stride + own_column + 8 * n + lane / 4);
          });
        });
        unrolled<row_parts>([&](unsigned m) {
          typename part::template part<4> x;
          x.read(lane % 4, 2, [&](unsigned row, unsigned term) -> float {
            return read(left, l + (own_row + 16 * m + lane / 4 + 8 * row) * left_stride + k + term);
          });
          unrolled<column_parts>([&](unsigned n) { part::add(b, sums[m][n], x, y[n]); });
        });
      }
      if (!now.ends_block && !adds_slabs) continue;
      each_own([&](float& total, float& sum, extent, extent) {
        total = is_first ? sum : sum_of(total, sum);
        sum = 0;
      });
      is_first = false;
    }
    b.wait(0);
    each_own([&](float total, float, extent row, extent c) {
      if (!in_c(row, c)) return;
      place(row, c) = of.finish(total, first + row, at.c + column + c, expert);
    });
  }

 private:
  // The tile's first row and column, and what is inside of the operands.
  struct source {
    const float *a, *w;
    extent rows, columns;
  };
  // Terms that are in shared memory at a time, all of one block of the sum.
  struct slab_of_terms {
    extent first;
    unsigned terms;
    bool ends_block;
  };

  FMOE_CALLS_BLOCK
  template <class Array>
  FMOE_DEVICE static float read(const Array& shared, unsigned i) {
    return shared[i];
  }

  FMOE_DEVICE static extent least(extent a, extent b) { return a < b ? a : b; }

  template <unsigned N, class F>
  FMOE_DEVICE static void unrolled(const F& f) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (unsigned i = 0; i < N; ++i) f(i);
  }

  FMOE_DEVICE extent block_length() const { return least(of.sum_block, of.depth); }
  FMOE_DEVICE extent slabs() const {
    if (of.depth == 0) return 0;
    const extent each = divide_up(block_length(), extent{depth_each});
    return of.depth / block_length() * each +
           divide_up(of.depth % block_length(), extent{depth_each});
  }
  FMOE_DEVICE slab_of_terms slab(extent s) const {
    const extent each = divide_up(block_length(), extent{depth_each});
    const extent block = s / each * block_length(), in_block = s % each * depth_each;
    const extent length = least(block_length(), of.depth - block);
    const extent terms = least(depth_each, length - in_block);
    return {block + in_block, static_cast<unsigned>(terms), in_block + terms == length};
  }

  // Begins to copy slab number s of `count` to its place in shared memory. Behind the last one it
  // is a group of no copies.
  FMOE_CALLS_BLOCK
  template <class Block, class Array>
  FMOE_DEVICE void begin_slab(Block& b, const source& from, extent s, extent count,
                              const Array& left, const Array& right) const {
    if (s < count) copy(b, from, slab(s), left, right, s % stages);
    b.commit();
  }
  // There are zeros around what is inside.
  FMOE_CALLS_BLOCK
  template <class Block, class Array>
  FMOE_DEVICE void copy(Block& b, const source& from, const slab_of_terms& s, const Array& left,
                        const Array& right, extent stage) const {
    const auto is_wide = [](const float* p, extent stride) {
      return stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
    };
    if (is_wide(from.a + s.first, of.a.stride) && s.terms % 4 == 0)
      copy_left<4>(b, from, s, left, stage);
    else copy_left<1>(b, from, s, left, stage);
    if (is_wide(from.w, of.columns)) copy_right<4>(b, from, s, right, stage);
    else copy_right<1>(b, from, s, right, stage);
  }
  FMOE_CALLS_BLOCK
  template <unsigned N, class Block, class Array>
  FMOE_DEVICE void copy_left(Block& b, const source& from, const slab_of_terms& s,
                             const Array& left, extent stage) const {
    for (unsigned i = b.thread(); i < tile_rows * depth_each / N; i += threads) {
      const unsigned row = i / (depth_each / N), term = i % (depth_each / N) * N;
      const bool is_inside = row < from.rows && term < s.terms;
      b.copy_async(left, stage * left_size + row * left_stride + term,
                   from.a + (is_inside ? row * of.a.stride + s.first + term : s.first), N,
                   is_inside);
    }
  }
  FMOE_CALLS_BLOCK
  template <unsigned N, class Block, class Array>
  FMOE_DEVICE void copy_right(Block& b, const source& from, const slab_of_terms& s,
                              const Array& right, extent stage) const {
    for (unsigned i = b.thread(); i < depth_each * tile_columns / N; i += threads) {
      const unsigned term = i / (tile_columns / N), n = i % (tile_columns / N) * N;
      const bool is_inside = term < s.terms && n < from.columns;
      b.copy_async(right, stage * right_size + term * right_stride + n,
                   from.w + (is_inside ? (s.first + term) * of.columns + n : 0), N, is_inside);
    }
  }
};

}  // namespace fmoe::cuda
