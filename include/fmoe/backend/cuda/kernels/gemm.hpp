// SPDX-License-Identifier: MIT
// c[rows, columns] (+)= a[rows, depth] w[depth, columns], then the passes. An element is the sum of
// blocks of terms at fixed places, added in order; each block is summed from 0 in plain order.
// These are the CPU's sums, so these are its bits.
#pragma once

#include <fmoe/backend/cuda/kernels/passes.hpp>
#include <fmoe/backend/cuda/kernels/rows.hpp>

namespace fmoe::cuda {

// One product of a step: offsets of its operands, that of the weight in whole matrices.
struct gemm_position {
  extent a, c, weight;
};

// The rows that each tile of a group's product has, all of one expert; made on the device.
struct group_tiles {
  const index* count = nullptr;  // null outside of groups
  const index *first = nullptr, *end = nullptr;
};

// A block makes a tile of 16 Own rows by 64 columns, and each of its threads Own by 4 numbers.
template <class T, unsigned Own>
struct gemm_kernel {
  static constexpr unsigned threads = 256, columns_each = 4, depth_each = 16;
  static constexpr unsigned tile_rows = 16 * Own, tile_columns = 16 * columns_each;
  static constexpr extent shared_bytes =
      depth_each * (tile_rows + tile_columns) * extent{sizeof(T)};

  rows_at<const T> a;
  rows_at<T> c;
  const T* weights;                // matrices of depth * columns numbers, one after the other
  const gemm_position* positions;  // in device memory
  extent position_count;
  extent rows, depth, columns;
  extent sum_block;
  extent expert_weights;  // matrices from one expert's to the next
  bool accumulate;
  group_rows group;
  group_tiles tiles;
  passes<T> finish;

  // `row_tiles` are as many as there may be.
  FMOE_DEVICE extent blocks(extent row_tiles) const {
    return row_tiles * position_count * divide_up(columns, extent{tile_columns});
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent column_tiles = divide_up(columns, extent{tile_columns});
    const extent tile = b.block() / column_tiles / position_count;
    const gemm_position at = positions[b.block() / column_tiles % position_count];
    if (tiles.count != nullptr && tile >= *tiles.count) return;  // a whole block
    const extent first = tiles.count == nullptr ? tile * tile_rows : tiles.first[tile];
    const extent end = tiles.count == nullptr ? rows : tiles.end[tile];
    const extent expert = group.expert_of(first);
    const extent column = b.block() % column_tiles * tile_columns;
    const T* const w = weights + (at.weight + expert * expert_weights) * depth * columns;
    const unsigned own_row = b.thread() / 16 * Own, own_column = b.thread() % 16 * columns_each;

    const auto left = b.template array<T>(depth_each * tile_rows);
    const auto right = b.template array<T>(depth_each * tile_columns);
    T sums[Own][columns_each] = {}, totals[Own][columns_each] = {};
    const auto each_own = [&](const auto& f) {
      FMOE_UNROLL
      for (unsigned m = 0; m < Own; ++m) FMOE_UNROLL
      for (unsigned n = 0; n < columns_each; ++n) f(m, n);
    };
    const auto in_c = [&](unsigned m, unsigned n) {
      return first + own_row + m < end && column + own_column + n < columns;
    };
    const auto place = [&](unsigned m, unsigned n) -> T& {
      return c.row(first + own_row + m)[at.c + column + own_column + n];
    };
    if (accumulate)
      each_own([&](unsigned m, unsigned n) {
        if (in_c(m, n)) totals[m][n] = place(m, n);
      });
    bool is_first = !accumulate;
    extent in_block = 0;
    for (extent k = 0; k < depth;) {
      const extent part = least(depth_each, least(sum_block - in_block, depth - k));
      for (unsigned i = b.thread(); i < depth_each * tile_rows; i += threads) {
        const unsigned row = i / depth_each, term = i % depth_each;
        const bool is_inside = first + row < end && term < part;
        left[term * tile_rows + row] = is_inside ? a.row(first + row)[at.a + k + term] : T(0);
      }
      for (unsigned i = b.thread(); i < depth_each * tile_columns; i += threads) {
        const unsigned term = i / tile_columns, n = i % tile_columns;
        const bool is_inside = column + n < columns && term < part;
        right[i] = is_inside ? w[(k + term) * columns + column + n] : T(0);
      }
      b.sync();
      for (unsigned term = 0; term < part; ++term) {
        T x[Own], y[columns_each];
        for (unsigned m = 0; m < Own; ++m) x[m] = left[term * tile_rows + own_row + m];
        for (unsigned n = 0; n < columns_each; ++n)
          y[n] = right[term * tile_columns + own_column + n];
        each_own([&](unsigned m, unsigned n) { sums[m][n] = fused(x[m], y[n], sums[m][n]); });
      }
      b.sync();
      k += part;
      in_block += part;
      if (in_block < sum_block && k < depth) continue;
      each_own([&](unsigned m, unsigned n) {
        totals[m][n] = is_first ? sums[m][n] : sum_of(totals[m][n], sums[m][n]);
        sums[m][n] = 0;
      });
      is_first = false;
      in_block = 0;
    }
    each_own([&](unsigned m, unsigned n) {
      if (!in_c(m, n)) return;
      place(m, n) =
          finish(totals[m][n], first + own_row + m, at.c + column + own_column + n, expert);
    });
  }

 private:
  FMOE_DEVICE static extent least(extent a, extent b) { return a < b ? a : b; }
};

}  // namespace fmoe::cuda
