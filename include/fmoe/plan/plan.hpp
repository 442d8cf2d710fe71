// SPDX-License-Identifier: MIT
// A plan as plain data: storages, packed weights, and steps over views of them. The backend runs
// the steps from top to bottom for every tile of tokens.
#pragma once

#include <algorithm>
#include <optional>

#include <fmoe/arrays/table_rows.hpp>
#include <fmoe/base/dtype.hpp>
#include <fmoe/plan/steps.hpp>

namespace fmoe::plan {

struct storage_row {  // one row of elements for each token; constants are one row
  enum class kind : std::uint8_t {
    arena,     // a temporary, at `offset` elements
    call,      // a temporary of all tokens, after `offset` elements of each
    once,      // a temporary that a call has once, at `offset` behind those of all tokens
    argument,  // bound at the call
    input,     // a leaf of the graph with one row for each token
    output,    // bound at the call
    leaf,      // a leaf of the graph without tokens
    constant,  // made once by the prologue, at `offset` of the constants
    screen,    // the rows of a screened weight
  } where;
  extent elements = 0;  // length of a row
  extent stride = 0;    // from row to row, of bound arrays where they are copied; 0 for constants
  extent offset = 0;
  extent source = 0;      // the number of the leaf, argument, result or weight
  bool in_place = false;  // read by other steps than packing and gathers
  bool table = false;     // read by gathers
  bool in_group = false;  // of a chunk of an expert's rows, in the arena of the thread that has it
  bool listed = false;    // in a group, with a row for each entry of the group's list
  bool operator==(const storage_row&) const = default;
};

// What a product rounds its rows to before it multiplies them with weights of the same type.
enum class row_rounding : std::uint8_t {
  none,
  bf16,  // bf16_product.hpp
  int8   // int8_product.hpp
};

inline const char* words_of(row_rounding r) {
  switch (r) {
    case row_rounding::bf16: return ", rounds its rows to bf16";
    case row_rounding::int8: return ", rounds its rows to 8 bits";
    case row_rounding::none: break;
  }
  return "";
}

struct packed_weight {  // [depth, columns] in panels, once for each batch position
  extent storage = 0;
  vector<axis_stride> batch{}, depth{}, columns{};
  extent batches = 0, K = 0, N = 0;
  bool screened = false;  // in 16 bits, and by columns
  row_rounding rounding = row_rounding::none;
  bool operator==(const packed_weight&) const = default;
};

// The elements from one rounded row of up to k numbers to the next: whole vectors, two for each
// group besides, and not a power of two, whose rows would share a few sets of the caches.
constexpr extent rounded_stride(extent k) {
  return round_up((q8::block + 2) * divide_up(k, q8::block), 32) + 32;
}

// Steps that are over for all tokens before those of the next stage begin.
struct stage {
  bool per_call;  // each step runs once for the whole call, in parts; else all run tile by tile
  extent first, end = first;  // of the plan's steps
  bool operator==(const stage&) const = default;
};

struct plan_result {
  vector<extent> shape;  // without the token axis
  bool per_token = true;
  extent made_in = 0;                     // a stage
  std::optional<sparse_result> sparse{};  // if it has only some rows

  extent size() const { return element_count(shape); }
};

struct step_plan {
  extent tile = 1;         // tokens of one task
  extent least_tile = 1;   // a tile is not made smaller than this for another thread
  extent arena = 0;        // elements of one task
  extent rounded = 0;      // the offset in the arena of rows that a product rounds
  extent call = 0;         // elements that a call keeps for each token between stages
  extent once = 0;         // and besides
  extent token_count = 1;  // tokens of a call at most
  extent constants = 0;
  extent sum_block = 0;         // terms of a gemm's sum that are summed separately
  extent own_ahead = 0;         // bytes ahead of their use at which a gemm's weights come into L1
  extent panel = 1;             // columns of a packed panel
  extent side_by_side = 1;      // panels that a gemm of few rows reads in turn
  extent l2 = extent{1} << 20;  // bytes
  // What a weight takes on each of several threads: to read it, and its arithmetic with one row.
  double read_seconds = 0, multiply_add_seconds = 0;
  bool tokens = true;           // if false, the plan is computed whole, as one token
  bool has_plain_sums = false;  // calls bind plain arrays for results without tokens
  vector<storage_row> storages;
  vector<packed_weight> weights;
  vector<step> prologue;  // constants, made once
  vector<step> steps;
  vector<row_range> shared;  // of `steps`, ascending; empty for a plan of one thread
  vector<stage> stages;
  vector<plan_result> results;

  // Is one of the steps of this kind?
  template <class Kind>
  bool has() const {
    return std::ranges::any_of(steps, [](const step& s) { return holds_alternative<Kind>(s); });
  }
};

// Returns the tiles of a call: as many as the plan's tile requires, or the next multiple of the
// threads if the tiles stay large enough.
inline extent tile_count(const step_plan& p, extent tokens, extent threads) {
  if (tokens == 0) return 0;
  const extent tiles = divide_up(tokens, p.tile), even = round_up(tiles, threads);
  return tokens / even >= p.least_tile ? even : tiles;
}

}  // namespace fmoe::plan
