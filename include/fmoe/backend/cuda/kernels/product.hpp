// SPDX-License-Identifier: MIT
// What all kernels of a product have in common: c[rows, columns] (+)= a[rows, depth] w[depth,
// columns], then the passes. An element is the sum of blocks of terms at fixed places, added in
// order; each block is summed from 0 in plain order. These are the CPU's sums, so these are its
// bits, whichever threads make a block.
#pragma once

#include <fmoe/backend/cuda/kernels/gemm.hpp>
#include <fmoe/backend/cuda/kernels/pack.hpp>

namespace fmoe::cuda {

template <class T>
struct product {
  rows_at<const T> a{};
  rows_at<T> c{};
  const void* weights = nullptr;  // matrices of depth rows, one after the other
  index pitch = 0;                // from row to row of a matrix, in whole accesses
  // Of weights of 8 bits: matrices of the scales of each group of rows, `scale_pitch` apart.
  const float* scales = nullptr;
  index scale_pitch = 0;
  const gemm_position* positions = nullptr;  // in device memory
  index position_count = 0;
  index rows = 0, depth = 0, columns = 0;
  index sum_block = 0;
  extent expert_weights = 0;  // matrices from one expert's to the next
  bool accumulate = false;
  bool aligned_a = false, aligned_c = false;  // every row, in every position
  group_rows group{};
  group_tiles tiles{};
  passes<T> finish{};
  // Where the sums of blocks go if not one block of threads adds them all, or null.
  T* sums = nullptr;
  index sums_each = 0;  // blocks of a sum that a block of threads makes

  FMOE_DEVICE index sum_blocks() const { return (depth + sum_block - 1) / sum_block; }
  // How many blocks of threads share the sums of a tile.
  FMOE_DEVICE index parts() const {
    return sums == nullptr ? 1 : (sum_blocks() + sums_each - 1) / sums_each;
  }
  FMOE_DEVICE extent sum_pitch() const {
    constexpr index each = numbers_each<T>;
    return (columns + each - 1) / each * each;
  }

  // The sums of a block of terms, from one row to the next `sum_pitch` apart.
  FMOE_DEVICE T* sums_of(index block, index position, extent row) const {
    return sums + ((extent{block} * position_count + position) * rows + row) * sum_pitch();
  }
};

// What one block of threads makes of a product: rows of a tile, columns from `column` on, and the
// terms from `first_term` on. Blocks count columns first, so that neighbours read the same rows.
class product_part {
 public:
  index first, end;  // rows
  index column, position;
  index first_term, end_term;

  // Returns false if the group has no such tile.
  template <class T>
  FMOE_DEVICE bool find(const product<T>& p, extent of_block, index tile_rows, index tile_columns) {
    auto block = static_cast<index>(of_block);
    const index across = (p.columns + tile_columns - 1) / tile_columns, parts = p.parts();
    column = block % across * tile_columns;
    block /= across;
    const index part = block % parts;
    block /= parts;
    position = block % p.position_count;
    const index tile = block / p.position_count;
    const bool is_group = p.tiles.count != nullptr;
    if (is_group && tile >= *p.tiles.count) return false;
    first = is_group ? p.tiles.first[tile] : tile * tile_rows;
    end = is_group ? p.tiles.end[tile] : p.rows - first < tile_rows ? p.rows : first + tile_rows;
    first_term = p.sums == nullptr ? 0 : part * p.sums_each * p.sum_block;
    const bool is_last = part + 1 == parts;
    end_term = is_last ? p.depth : first_term + p.sums_each * p.sum_block;
    return true;
  }

  // The first number that the part reads.
  template <class T>
  FMOE_DEVICE const T* left(const product<T>& p) const {
    return p.a.row(first) + p.positions[position].a;
  }
  template <class S, class T>
  FMOE_DEVICE const S* right(const product<T>& p) const {
    return static_cast<const S*>(p.weights) + matrix(p) * p.depth * p.pitch + column;
  }
  template <class T>
  FMOE_DEVICE const float* scales(const product<T>& p) const {
    const index groups = (p.depth + scale_group - 1) / scale_group;
    return p.scales + matrix(p) * groups * p.scale_pitch + column;
  }

 private:
  template <class T>
  FMOE_DEVICE extent matrix(const product<T>& p) const {
    return p.positions[position].weight + p.group.expert_of(first) * p.expert_weights;
  }
};

// The terms of a sum, stage by stage. No stage has terms of two blocks.
template <index Most>
struct stages_of_sum {
  index term, end, left;  // `left` terms of the block

  FMOE_DEVICE bool has_more() const { return term < end; }
  FMOE_DEVICE index count() const {
    const index here = end - term < left ? end - term : left;
    return here < Most ? here : Most;
  }
  FMOE_DEVICE bool ends_block() const { return left <= Most || end - term <= Most; }
  FMOE_DEVICE void next(index sum_block) {
    const index n = count();
    term += n;
    left = left == n ? sum_block : left - n;
  }
};

// Adds the sums of blocks, in order, and finishes the numbers; a thread makes one of them.
template <class T>
struct add_sums {
  product<T> of;

  FMOE_DEVICE void operator()(extent i) const {
    const extent n = i % of.columns, rest = i / of.columns, row = rest / of.position_count;
    const auto position = static_cast<index>(rest % of.position_count);
    if (!of.group.has(row)) return;
    const extent column = of.positions[position].c + n;
    T& c = of.c.row(row)[column];
    const T* sum = of.sums_of(0, position, row) + n;
    const extent step = of.sum_pitch() * of.position_count * of.rows;
    const index blocks = of.sum_blocks();
    T total = of.accumulate ? sum_of(c, *sum) : *sum;
    FMOE_UNROLL_BY(4)
    for (index b = 1; b < blocks; ++b) total = sum_of(total, sum[b * step]);
    c = of.finish(total, row, column, of.group.expert_of(row));
  }
};

}  // namespace fmoe::cuda
