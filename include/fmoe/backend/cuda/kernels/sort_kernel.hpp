// SPDX-License-Identifier: MIT
// The sort of group.hpp by warps: a lane has a token, and a warp counts or places the tokens of a
// chunk that selected an expert. One block does all of it where there are few chunks; otherwise
// many blocks count, one adds, and many place.
#pragma once

#include <fmoe/backend/cuda/kernels/group.hpp>
#include <fmoe/backend/cuda/kernels/warp_selection.hpp>

namespace fmoe::cuda {

template <class T>
struct sort_kernel {
  static constexpr unsigned threads = 512, lanes = 32, warps_each = threads / lanes;
  static constexpr extent shared_bytes = 0;
  static constexpr extent most_alone = 4 * warps_each;  // parts that one block sorts alone

  sort_lists lists;
  selections_at<T> selections;
  bool counts = true, adds = true, places = true;  // all of them in one block only

  FMOE_DEVICE extent parts() const { return lists.of.experts * lists.of.chunks(); }
  // Blocks of a launch that does not add.
  extent blocks() const { return divide_up(parts(), extent{warps_each}); }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent warp = b.block() * warps_each + b.thread() / lanes;
    const extent step = adds ? warps_each : parts();
    if (counts)
      for (extent part = warp; part < parts(); part += step) count(b, part);
    b.sync();
    if (adds) {
      for (extent e = warp; e < lists.of.experts; e += warps_each) add_chunks(b, e);
      b.sync();
      if (warp == 0) add_experts(b);
      b.sync();
    }
    if (places)
      for (extent part = warp; part < parts(); part += step) place(b, part);
  }

 private:
  static constexpr index none = ~index{0};

  struct sums {
    index before, all;
  };

  // The sum of what the lanes of a warp say, and of what those before this one say.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE static sums sum_of_lanes(Block& b, index mine) {
    const unsigned lane = b.thread() % lanes;
    index upto = mine;
    FMOE_UNROLL
    for (unsigned step = 1; step < lanes; step *= 2) {
      const index other = b.shuffle(upto, lane - step);
      if (lane >= step) upto += other;
    }
    return {upto - mine, b.shuffle(upto, lanes - 1)};
  }

  // The place of an expert among the entries of a token.
  FMOE_DEVICE index entry_of(extent token, index expert) const {
    if (token >= lists.of.tokens) return none;
    const selection_row<T> s = selections.row(token, 0);
    const index n = s.count();
    for (index k = 0; k < n; ++k)
      if (s.indices()[k] == expert) return k;
    return none;
  }

  // Calls f(token, entry, before) for the entries of a chunk that selected an expert, of which
  // `before` stand before it. Returns their number.
  FMOE_CALLS_BLOCK
  template <class Block, class F>
  FMOE_DEVICE index each_entry(Block& b, extent part, const F& f) const {
    const auto expert = static_cast<index>(part / lists.of.chunks());
    const extent first = part % lists.of.chunks() * sort_places::chunk_tokens;
    const unsigned lane = b.thread() % lanes;
    index n = 0;
    FMOE_UNROLL
    for (extent at = 0; at < sort_places::chunk_tokens; at += lanes) {
      const extent token = first + at + lane;
      const index entry = entry_of(token, expert);
      const unsigned all = b.ballot(entry != none);
      if (entry != none) f(token, entry, n + count_ones(all & ((1u << lane) - 1)));
      n += count_ones(all);
    }
    return n;
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void count(Block& b, extent part) const {
    const index n = each_entry(b, part, [](extent, index, index) {});
    if (b.thread() % lanes == 0)
      lists.of_chunk(part / lists.of.chunks())[part % lists.of.chunks()] = n;
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void add_chunks(Block& b, extent expert) const {
    index* const of_chunk = lists.of_chunk(expert);
    index n = 0;
    for (extent first = 0; first < lists.of.chunks(); first += lanes) {
      const extent chunk = first + b.thread() % lanes;
      const bool is_one = chunk < lists.of.chunks();
      const sums s = sum_of_lanes(b, is_one ? of_chunk[chunk] : 0);
      if (is_one) of_chunk[chunk] = n + s.before;
      n += s.all;
    }
    if (b.thread() % lanes == 0) lists.of_expert()[expert] = n;
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void add_experts(Block& b) const {
    const auto tile_rows = static_cast<index>(lists.of.tile_rows);
    index rows = 0, tiles = 0;
    for (extent first = 0; first < lists.of.experts; first += lanes) {
      const extent expert = first + b.thread() % lanes;
      const bool is_one = expert < lists.of.experts;
      const index mine = is_one ? lists.of_expert()[expert] : 0;
      const sums of_rows = sum_of_lanes(b, mine),
                 of_tiles = sum_of_lanes(b, (mine + tile_rows - 1) / tile_rows);
      const index end = rows + of_rows.before + mine;
      index row = rows + of_rows.before, tile = tiles + of_tiles.before;
      if (is_one) lists.of_expert()[expert] = row;
      for (; row < end; ++tile) {
        lists.first()[tile] = row;
        row = end - row < tile_rows ? end : row + tile_rows;
        lists.end()[tile] = row;
      }
      rows += of_rows.all;
      tiles += of_tiles.all;
    }
    if (b.thread() != 0) return;
    *lists.row_count() = rows;
    *lists.tile_count() = tiles;
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void place(Block& b, extent part) const {
    const extent expert = part / lists.of.chunks();
    const index first =
        lists.of_expert()[expert] + lists.of_chunk(expert)[part % lists.of.chunks()];
    each_entry(b, part, [&](extent token, index entry, index before) {
      lists.tokens()[first + before] = static_cast<index>(token);
      lists.experts()[first + before] = static_cast<index>(expert);
      lists.rows()[token * lists.of.keep + entry] = first + before;
    });
  }
};

// Sorts the entries of tokens by expert.
template <class T, class Queue>
void sort_entries(Queue& queue, const sort_lists& lists, const selections_at<T>& from) {
  using kernel = sort_kernel<T>;
  const kernel all{lists, from};
  if (all.parts() <= kernel::most_alone) return queue.launch("sort", all, 1);
  queue.launch("sort", kernel{lists, from, true, false, false}, all.blocks());
  queue.launch("sort", kernel{lists, from, false, true, false}, 1);
  queue.launch("sort", kernel{lists, from, false, false, true}, all.blocks());
}

}  // namespace fmoe::cuda
