// SPDX-License-Identifier: MIT
// A plan as plain data: storages, packed weights, and steps over views of them. A backend walks the
// steps from top to bottom for every tile of tokens. Nothing here knows a layer or a kernel.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/functions.hpp>

namespace fmoe::cpu {

struct storage_row {  // one row of elements per token; constants are one row
  enum class kind : std::uint8_t {
    arena,     // a temporary, at `offset` elements
    call,      // a temporary of all tokens, behind `offset` elements of each
    once,      // a temporary that a call has once, at `offset` behind those of all tokens
    argument,  // bound at the call
    input,     // a leaf of the graph with one row per token
    output,    // bound at the call
    leaf,      // a leaf of the graph without tokens
    constant,  // made once by the prologue, at `offset` of the constants
  } where;
  extent elements = 0;  // of a row
  extent stride = 0;    // from row to row; 0 for constants
  extent offset = 0;
  int source = -1;        // leaf, input: the graph's node; argument, output: its number
  bool in_place = false;  // read by more than packing and gathers
  bool operator==(const storage_row&) const = default;
};

struct view {  // row + offset + step * (position of the enclosing loop) + expert * (number of the
               // group's expert)
  int storage = -1;
  extent offset = 0, step = 0, expert = 0;
  bool operator==(const view&) const = default;
};

struct epilogue {  // applied to a finished tile while it is in L1
  enum class kind : std::uint8_t { map, add, multiply } what;
  pointwise fn{};
  double parameter = 0;
  view other{};
  extent period = 0;  // elements of `other`; it repeats along the row
  bool operator==(const epilogue&) const = default;
};

struct axis_stride {  // one label of a constant
  extent length, stride;
  bool operator==(const axis_stride&) const = default;
};

struct packed_weight {  // [depth, columns] in panels, once per batch position
  int storage;
  std::vector<axis_stride> batch, depth, columns;
  extent batches, K, N;
  bool screened = false;  // in 16 bits, and by columns
  bool operator==(const packed_weight&) const = default;
};

struct gemm_step {  // c[t, b, f, N] (+)= a[t, b, f, K] w[b, K, N], one product per batch and free
                    // position
  std::string text;
  view a, c;
  int weight;
  extent K, N;
  struct row {
    extent a, c, weight;  // offsets; the weight's counts batches
    bool operator==(const row&) const = default;
  };
  std::vector<row> rows;
  extent k_step = 0,
         n_step = 0;        // rows, columns of w per unit of the loop; 0 if it does not cut them
  extent expert_step = 0;   // batches of w per expert of a group
  bool accumulate = false;  // the sum starts from what c holds
  std::vector<epilogue> epilogues;
};

struct nest_axis {  // one loop of a small product; strides in elements
  extent length, a, b, c;
  bool operator==(const nest_axis&) const = default;
};

struct batched_step {  // per token: c[out] = sum over summed of a[...] b[...]
  std::string text;
  view a, b, c;
  std::vector<nest_axis> out, summed;  // the last of `out` is the vector
  extent columns;                      // of c's row
  std::vector<epilogue> epilogues;
  enum class cut : std::uint8_t {
    none,
    out,
    summed
  } axis = cut::none;  // whose first axis the loop cuts
};

struct reduce_step {  // per token: c[out] = sum over summed of a; a permutation if nothing is
                      // summed
  std::string text;
  view a, c;
  std::vector<nest_axis> out, summed;
  extent columns;
  std::vector<epilogue> epilogues;
};

struct gather_step {  // c[t, N] = sum over the rows of selections and the selected k of each of
                      // value * table[index, N]
  std::string text;
  view selection, table, c;
  extent rows, keep, N;
  extent table_row;  // elements from one row's table to the next; 0 if they share it
  std::vector<epilogue> epilogues;
};

struct rescale_step {  // c[t, row, k] = value * factors[index]
  std::string text;
  view selection, factors, c;
  extent rows, keep;
};

struct sample_step {  // c[t, row, k] = value * f(sum over K of x[t, K] table[index, K]), f being
                      // the passes
  std::string text;
  view selection, x, table, c;
  extent rows, keep, K, table_row;
  std::vector<epilogue> epilogues;
};

struct pointwise_step {  // c = a, then the epilogues
  std::string text;
  view a, c;
  extent columns;
  extent column_step = 0;  // per unit of the enclosing loop
  std::vector<epilogue> epilogues;
};

struct gate_step {
  std::string text;
  gate fn;
  double parameter;
  view a, c, bound;      // bound: storage -1 if there is none
  extent rows, columns;  // rows per token
  extent width;          // of c's rows: columns, 1 for a norm
  extent bounds = 0;     // of a token; they repeat along its rows
};

struct append_step {  // each row, then a 1
  std::string text;
  view a, c;
  extent rows, columns;
};

struct select_step {  // in a loop: fed chunk by chunk, selects at the last one
  std::string text;
  selection_rule rule;
  view a, selection;
  extent rows, columns, keep;  // columns of the result
  // product_top_k: two lists of `list` a row, and room for a state of each behind the rows' own.
  extent list = 0;
};

struct screen_step {  // the k greatest of a[t, K] w[K, N] after the passes
  std::string text;
  view a, selection, scratch;
  int weight;
  extent K, N, keep;
  selection_rule rule;
  std::vector<epilogue> epilogues;
};

struct token_sum_step {  // c[out] = sum over the tokens of a call, and over summed, of a[...]
                         // b[...]
  std::string text;
  view a, b, c;                        // b: storage -1 if there is none
  std::vector<nest_axis> out, summed;  // the last of `out` is the vector
  extent block;                        // tokens that are summed by themselves
};

struct expert_choice_step {  // on all tokens at once
  std::string text;
  selection_rule rule;
  view scores, ranked, selection;
  extent experts;
  extent scratch;  // behind so many elements of each token in the call's memory: a number for each
                   // token
};

struct expand_step {  // a selection as dense rows
  std::string text;
  view selection, c;
  extent rows, columns, keep;
};

struct pick_step {  // in a group: c[row] = a[token of the row], its axes in order
  std::string text;
  view a, c;
  std::vector<nest_axis> out;
};

struct put_step {  // in a group: c[token of the row] += weight of the row * a[row]
  std::string text;
  view a, selection, c;
  extent columns, keep;
};

struct exclude_step {  // per token: c[group] = sum over the kept places of the other axis, for
                       // groups with a pair left out
  static constexpr extent most_operands = 8;
  struct axis {
    extent length, c;
    std::vector<extent> strides;  // by operand
    bool operator==(const axis&) const = default;
  };
  std::string text;
  std::vector<view> operands;
  extent factors;  // operands, the first ones, without an axis of their own in the result
  view c;          // holds the sum of all
  axis group, other;
  std::vector<axis> inner, outer,
      free;  // summed by factors alone; summed; of the result, the last one the vector
  std::vector<extent> groups, ends;  // the groups, and where each one's places end in the list
  std::vector<extent> left_out;      // places of the other axis, ascending in each group
  bool is_row = false;  // one operand has an axis of its own in the result, contiguous in both
};

struct loop_step;
struct group_step;
using step = std::variant<gemm_step, batched_step, reduce_step, gather_step, rescale_step,
                          sample_step, pointwise_step, gate_step, append_step, select_step,
                          screen_step, token_sum_step, expert_choice_step, expand_step,
                          exclude_step, pick_step, put_step, loop_step, group_step>;

struct loop_step {  // `length` units in chunks
  char label;
  extent length, chunk;
  std::vector<step> body;
};

struct group_step {  // for each expert, its tokens' rows in chunks; c is 0 before and complete
                     // after
  std::string text;
  view selection, c;
  extent experts, keep, columns;
  extent rows;     // of a chunk
  extent scratch;  // where in the arena the lists of tokens are
  std::vector<step> body;
  std::vector<epilogue> epilogues;
};

// Elements of T that the lists of a group take: a start for each expert, and token and place of
// each selected entry.
constexpr extent group_scratch(extent experts, extent keep, extent tile, extent element_bytes) {
  return divide_up((experts + 1 + 2 * tile * keep) * sizeof(std::uint32_t), element_bytes);
}

// Steps that are over for all tokens before those of the next stage begin.
struct stage {
  bool per_call;  // each step runs once for the whole call, in parts; else all run tile by tile
  extent first, end = first;  // of the plan's steps
  bool operator==(const stage&) const = default;
};

struct plan_result {
  std::vector<extent> shape;  // without the token axis
  bool per_token = true;
  extent made_in = 0;  // a stage

  extent size() const { return element_count(shape); }
};

struct plan {
  extent tile = 1;         // tokens of one task
  extent least_tile = 1;   // a tile is not made smaller than this for the sake of another thread
  extent arena = 0;        // elements of one task
  extent call = 0;         // elements that a call keeps for each token between stages
  extent once = 0;         // and besides
  extent token_count = 1;  // tokens of a call at most
  extent constants = 0;
  extent sum_block = 0;  // terms of a gemm's sum that are summed by themselves
  bool tokens = true;    // false: computed whole, as one token
  std::vector<storage_row> storages;
  std::vector<packed_weight> weights;
  std::vector<step> prologue;  // constants, made once
  std::vector<step> steps;
  std::vector<stage> stages;
  std::vector<plan_result> results;
};

// Tiles of a call: as many as the plan's tile asks for, and a multiple of the threads where they
// stay large enough.
inline extent tile_count(const plan& p, extent tokens, extent threads) {
  if (tokens == 0) return 0;
  const extent tiles = divide_up(tokens, p.tile), even = round_up(tiles, threads);
  return tokens / even >= p.least_tile ? even : tiles;
}

}  // namespace fmoe::cpu
