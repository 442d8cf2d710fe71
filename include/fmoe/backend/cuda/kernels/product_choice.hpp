// SPDX-License-Identifier: MIT
// Which kernel makes a product, and how its sum is shared by blocks of threads. It depends on the
// shape alone, and no bit depends on it.
#pragma once

#include <algorithm>
#include <cstdint>

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/base/checked.hpp>

namespace fmoe::cuda {

enum class product_form : std::uint8_t { stream_1, stream_4, stream_16, stream_24, small, large };

struct product_shape {
  extent rows, depth, columns, positions;
  extent sum_block;
  extent tile_rows = 0;  // of a group; 0 outside of groups
  bool has_large;        // a kernel for large tiles

  extent sum_blocks() const { return divide_up(depth, sum_block); }
  // The elements that the sums of blocks take.
  extent sums() const { return sum_blocks() * positions * rows * round_up(columns, extent{4}); }
  extent tiles(extent size) const {
    return divide_up(rows, size) * divide_up(columns, size) * positions;
  }
};

struct product_choice {
  product_form form;
  extent sums_each = 0;  // blocks of the sum that a block of threads makes; 0: all of them

  bool operator==(const product_choice&) const = default;
};

// Numbers of an H100.
inline constexpr extent multiprocessors = 132;
// Rows of which each kernel makes use, and of a tile of groups with so few that they are streamed.
inline constexpr extent most_streamed = 24, few_group_rows = 64, few_tile_rows = 16;
inline constexpr extent small_tile = 64, large_tile = 128;
// Fewer large tiles are slower on an H100 than small ones.
inline constexpr extent many_tiles = 4 * multiprocessors;
// Terms of a stage of tensor cores, and the columns of a tile.
inline constexpr extent tensor_stage = 32, tensor_tile_columns = 128;
// Elements that the sums of blocks take at most.
inline constexpr extent most_sums = extent{8} << 20;

// `room` is the number of elements that there are for sums of blocks.
inline product_choice choose_product(const product_shape& s, extent room) {
  using enum product_form;
  const bool fits = s.sums() <= room && s.depth != 0;
  const bool is_few = s.tile_rows != 0 ? s.tile_rows <= few_tile_rows : s.rows <= most_streamed;
  if (is_few && fits) {
    const extent rows = s.tile_rows != 0 ? std::min(s.tile_rows, s.rows) : s.rows;
    return {rows <= 1 ? stream_1 : rows <= 4 ? stream_4 : rows <= 16 ? stream_16 : stream_24, 1};
  }
  if (s.tile_rows == large_tile) return {large};
  if (s.has_large && s.tiles(large_tile) >= many_tiles && s.tile_rows == 0) return {large};
  const extent tiles = s.tiles(small_tile), wanted = 2 * multiprocessors;
  if (tiles >= wanted || s.sum_blocks() <= 1 || !fits) return {small};
  const extent parts = std::min(s.sum_blocks(), divide_up(wanted, tiles));
  return {small, divide_up(s.sum_blocks(), parts)};
}

// The terms that tensor cores add up before their sum is added to others, in order. Tensor cores
// may cut off where float rounds: sums that shall be as precise as those of float are short ones.
constexpr extent tensor_sum_block(math how, extent sum_block) {
  return how == math::tf32x3 ? tensor_stage : sum_block;
}

// Is every stage such a block where one block of threads adds them all?
template <math How>
inline constexpr bool adds_stages = tensor_sum_block(How, 0) != 0;

struct tensor_choice {
  extent tile_rows;
  extent sums_each = 0;  // blocks of a sum that a block of threads makes; 0: all of them

  bool operator==(const tensor_choice&) const = default;
};

// Large tiles read weights less often, and small ones give more blocks of threads something to do.
// Few tiles share the sums of large weights: less than a megabyte is read in the time of one more
// launch. `s` has the blocks of tensor_sum_block.
inline tensor_choice choose_tensor_product(const product_shape& s, extent room,
                                           bool has_warpgroups) {
  constexpr extent least_weights = extent{1} << 18, least_terms = 4 * tensor_stage;
  // Large tiles are worth it sooner where a number takes three products, and where warpgroups
  // multiply.
  const bool is_split = s.sum_block == tensor_stage, is_soon = is_split || has_warpgroups,
             fills = s.tiles(large_tile) >= (is_soon ? multiprocessors : many_tiles);
  const extent rows = s.tile_rows != 0          ? s.tile_rows
                      : s.rows <= few_tile_rows ? few_tile_rows
                      : fills                   ? large_tile
                                                : small_tile;
  const extent tiles =
      divide_up(s.rows, rows) * divide_up(s.columns, tensor_tile_columns) * s.positions;
  const bool is_large = s.depth * s.columns * s.positions >= least_weights;
  if (tiles == 0 || tiles >= multiprocessors || !is_large || s.sums() > room) return {rows};
  const extent each = divide_up(s.sum_blocks(), divide_up(2 * multiprocessors, tiles)),
               most = std::max(each, divide_up(least_terms, s.sum_block));
  return most < s.sum_blocks() ? tensor_choice{rows, most} : tensor_choice{rows};
}

// Returns the rows of the tiles of a group.
inline extent group_tile_rows(extent rows, extent experts, bool has_large) {
  if (rows <= few_group_rows) return few_tile_rows;
  return has_large && rows >= 2 * large_tile * experts ? large_tile : small_tile;
}

// Returns the elements for sums of blocks that a product of at most so many rows makes use of.
inline extent room_for_sums(product_shape s) {
  const extent most = s.rows, few = s.tile_rows != 0 ? few_group_rows : most_streamed;
  s.rows = 1;
  const extent each = std::max<extent>(1, s.sums()),
               across = std::max<extent>(1, s.tiles(small_tile)),
               tiled = (2 * multiprocessors - 1) / across * small_tile;
  return std::min({most, std::max(few, tiled), most_sums / each}) * each;
}

// The same on tensor cores, with their blocks of sums.
inline extent room_for_tensor_sums(product_shape s) {
  const extent across =
      std::max<extent>(1, divide_up(s.columns, tensor_tile_columns) * s.positions);
  const extent most = std::max(few_tile_rows, (multiprocessors - 1) / across * small_tile);
  s.rows = s.tile_rows != 0 ? few_group_rows : std::min(s.rows, most);
  while (s.rows > 1 && s.sums() > most_sums) s.rows = divide_up(s.rows, extent{2});
  return choose_tensor_product(s, most_sums, false).sums_each != 0 ? s.sums() : 0;
}

}  // namespace fmoe::cuda
