// SPDX-License-Identifier: MIT
// The steps of a plan as plain data, over views of its storages, and what a task needs for them.
// Nothing here knows a layer or a kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/number_function.hpp>
#include <fmoe/base/variant.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::plan {

// The elements at row + offset + step * (position of the enclosing loop) + expert * (number of the
// group's expert).
struct view {
  static constexpr extent none = ~extent{0};
  extent storage = none;
  extent offset = 0, step = 0, expert = 0;

  bool exists() const { return storage != none; }
  bool operator==(const view&) const = default;
};

struct epilogue {  // applied to a finished tile while it is in L1
  pass_kind what = pass_kind::map;
  number_function f{};  // of a map
  view other{};
  extent period = 0;  // elements of `other`, which repeats along the row
  bool operator==(const epilogue&) const = default;
};

struct axis_stride {  // one label of a constant
  extent length, stride;
  bool operator==(const axis_stride&) const = default;
};

// Returns the offset of every combination of the axes, row-major.
inline vector<extent> offsets(const vector<axis_stride>& axes) {
  vector<extent> r{0};
  for (const axis_stride& a : axes) {
    vector<extent> more;
    more.reserve(r.size() * a.length);
    for (const extent base : r)
      for (extent i = 0; i < a.length; ++i) more.push_back(base + i * a.stride);
    r = std::move(more);
  }
  return r;
}

// c[t, b, f, N] (+)= a[t, b, f, K] w[b, K, N], one product for each batch and free position.
struct gemm_step {
  std::string text;
  view a, c;
  extent weight = 0;
  extent K = 0, N = 0;
  struct row {
    extent a, c, weight;  // offsets; that of the weight counts batches
    bool operator==(const row&) const = default;
  };
  vector<row> rows{};
  // Rows and columns of w for each unit of the loop; 0 if the loop does not cut them.
  extent k_step = 0, n_step = 0;
  extent expert_step = 0;   // batches of w for each expert of a group
  bool accumulate = false;  // the sum starts from the content of c
  bool ranks = false;       // on a GPU: what follows from the result ranks experts
  vector<epilogue> epilogues{};
};

struct nest_axis {  // one loop of a small product; strides in elements
  extent length = 0, a = 0, b = 0, c = 0;
  bool operator==(const nest_axis&) const = default;
};

struct batched_step {  // for each token: c[out] = sum over summed of a[...] b[...]
  std::string text;
  view a, b, c;
  vector<nest_axis> out{}, summed{};  // the last axis of `out` is the vector
  extent columns = 0;                 // columns in a row of c
  vector<epilogue> epilogues{};
  enum class cut : std::uint8_t {
    none,
    out,
    summed
  } axis = cut::none;  // the loop cuts the first axis of these
};

// For each token: c[out] = sum over summed of a; a permutation if nothing is summed.
struct reduce_step {
  std::string text;
  view a, c;
  vector<nest_axis> out{}, summed{};
  extent columns = 0;
  vector<epilogue> epilogues{};
};

// c[t, N] = sum over the rows of selections, and over the selected k of each row, of
// value * table[index, N].
struct gather_step {
  std::string text;
  view selection, table, c;
  extent rows = 0, keep = 0, N = 0;
  extent table_row = 0;  // elements from the table of one row to the next; 0 if they share it
  vector<epilogue> epilogues{};
};

struct rescale_step {  // c[t, row, k] = value * factors[index]
  std::string text;
  view selection, factors, c;
  extent rows = 0, keep = 0, table_row = 0;
};

// c[t, row, k] = value * f(sum over K of x[t, K] table[index, K]), where f is the passes; or f(...)
// where the value is above 0.
struct sample_step {
  std::string text;
  view selection, x, table, c;
  extent rows = 0, keep = 0, K = 0, table_row = 0;
  bool multiplies = true, weighs = true;
  vector<epilogue> epilogues{};
};

struct pointwise_step {  // c = a, then the epilogues
  std::string text;
  view a, c;
  extent columns = 0;
  extent column_step = 0;  // for each unit of the enclosing loop
  vector<epilogue> epilogues{};
};

struct row_function_step {
  std::string text;
  row_function fn{};
  double parameter = 0;
  grouping groups{};             // of best_groups
  view a, c, bound{};            // bound may not exist
  extent rows = 0, columns = 0;  // rows for each token
  extent bounds = 0;             // bounds of a token; they repeat along its rows
};

struct row_norm_step {  // one number of each row
  std::string text;
  row_norm which{};
  view a, c;
  extent rows = 0, columns = 0;  // rows for each token
};

struct append_step {  // each row, then a 1
  std::string text;
  view a, c;
  extent rows = 0, columns = 0;
};

struct select_step {  // a loop feeds it chunk by chunk, and it selects at the last one
  std::string text;
  selection_rule rule{};
  view a, ranked, selection;               // ranked may not exist
  extent rows = 0, columns = 0, keep = 0;  // columns of the result
  // The length of each of the two lists that a row is made of. product_top_k has room for a state
  // of each after the states of the rows.
  extent list = 0;
};

struct screen_step {  // the k greatest of a[t, K] w[K, N] after the passes
  std::string text;
  selection_rule rule{};
  view a, selection, scratch;
  extent weight = 0;
  extent K = 0, N = 0, keep = 0;
  vector<epilogue> epilogues{};
};

// c[out] = sum over the tokens of a call, and over `summed`, of a[...] b[...]; b may not exist.
struct token_sum_step {
  std::string text;
  view a, b, c;
  vector<nest_axis> out{}, summed{};  // the last of `out` is the vector
  extent block = 0;                   // tokens that are summed by themselves
};

// c[n, N] = sum over the tokens of a call of selection[t, n] b[t, N]; b may not exist.
struct selection_sum_step {
  std::string text;
  view selection, b, c;
  // Each token has so many rows of selections. With a table of its own, a row's experts are the
  // next ones of the result.
  extent rows = 1;
  bool own_tables = false;
  extent experts = 0, keep = 0, N = 0;          // experts of the result
  extent expert_stride = 0, column_stride = 1;  // of c
  extent block = 0;                             // tokens that are summed by themselves
  // Of c only the rows of selected experts are there, and N numbers lie behind each other.
  bool is_sparse = false;

  // Neighbouring experts whose columns lie in the same lines of the cache are summed together.
  static constexpr extent columns_together = 16;

  // How far the experts of a token's next row of selections lie from those of this one.
  extent own() const { return own_tables ? experts / rows : 0; }
  // The entries of so many tokens are sorted together: those of four blocks.
  extent sorted_tokens() const { return 4 * block; }
  extent sorted_entries() const { return sorted_tokens() * rows * keep; }
  // The rows that a task needs: the sum of a block, and the totals of an expert or, where experts
  // are columns, of some.
  extent rows_of_scratch() const { return 1 + (column_stride == 1 ? 1 : columns_together); }
};

struct expert_choice_step {  // on all tokens at once
  std::string text;
  selection_rule rule{};
  view scores, ranked, selection;
  extent experts = 0;
  // The memory of the call has a number for each token after this many elements of each token.
  extent scratch = 0;
};

struct kept_step {  // a number of each kept entry
  std::string text;
  kept_part what{};
  view selection, c;
  extent rows = 0, keep = 0;
};

struct expand_step {  // a selection as dense rows
  std::string text;
  view selection, c;
  extent rows = 0, columns = 0, keep = 0;
};

struct pick_step {  // in a group: c[row] = a[token of the row], with its axes in order
  std::string text;
  view a, c;
  vector<nest_axis> out{};
  extent place = 0;  // elements of a from one place of the token's entries to the next
};

struct keep_step {  // in a group: c[token of the row, place of the row] = a[row]
  std::string text;
  view a, selection, c;
  extent columns = 0, keep = 0;
};

// c[t, row, k] = a[t, row, index], with the other axes of a. If it spreads, c[t, row, index] =
// a[t, row, k], and 0 at the other indices.
struct take_step {
  std::string text;
  view selection, a, c;
  extent rows = 0, keep = 0;
  nest_axis row{}, entry{};  // the strides of rows of selections, and of experts and of places
  vector<nest_axis> out{};
  extent columns = 0;  // of c
  bool spreads = false;
};

struct weigh_step {  // a selection with the entries of another one and the values a[t, row, k]
  std::string text;
  view selection, a, c;
  extent rows = 0, keep = 0;
};

struct reweigh_step {  // a selection of scores with another weighting
  std::string text;
  view selection, scores, c;  // all scores, for weights that depend on them
  extent rows = 0, keep = 0, columns = 0;
  weighting weights{};
  bool keeps_zeros = false;
};

struct unpair_step {  // sums of the kept pairs of two lists, [t, row, 2, list]
  std::string text;
  view selection, c;
  extent rows = 0, keep = 0, list = 0;
};

// c[n, out] = the sum over the tokens of a call that selected n, and over `summed`, of a[t, place,
// ...] b[t, place, ...]; b may not exist. An operand without places has one row for each token.
struct expert_sum_step {
  struct operand {
    view at;
    bool has_places = false;
    extent size = 0;  // elements of an entry
    bool operator==(const operand&) const = default;
  };
  std::string text;
  view selection;
  operand a, b;
  view c;
  vector<nest_axis> out{}, summed{};  // the last of `out` is the vector
  extent experts = 0, keep = 0, expert_stride = 0;
  extent block = 0;     // tokens that are summed by themselves
  extent together = 0;  // tokens whose rows of an expert are brought together: some blocks
  static constexpr extent most_blocks = 4;
};

struct put_step {  // in a group: c[token of the row] += weight of the row * a[row]
  std::string text;
  view a, selection, c;
  extent columns = 0, keep = 0;
};

// For each token: c[group] = sum over the kept places of the other axis, for groups with a pair
// left out.
struct exclude_step {
  static constexpr extent most_operands = 8;
  struct axis {
    extent length, c;
    vector<extent> strides;  // by operand
    bool operator==(const axis&) const = default;
  };
  std::string text;
  vector<view> operands{};
  // The number of operands, the first ones, without an axis of their own in the result.
  extent factors = 0;
  view c;  // holds the sum of all
  axis group, other;
  // Axes that only factors sum over, other summed axes, and axes of the result, whose last one is
  // the vector.
  vector<axis> inner{}, outer{}, free{};
  // The groups, and the end of each group's places in the list.
  vector<extent> groups{}, ends{};
  vector<extent> left_out{};  // places of the other axis, ascending in each group
  // One operand has an axis of its own in the result, which is contiguous in both.
  bool is_row = false;
};

struct loop_step;
struct group_step;
using step = variant<gemm_step, batched_step, reduce_step, gather_step, rescale_step, sample_step,
                     pointwise_step, row_function_step, row_norm_step, append_step, select_step,
                     screen_step, token_sum_step, selection_sum_step, expert_choice_step, kept_step,
                     expand_step, exclude_step, take_step, weigh_step, reweigh_step, unpair_step,
                     expert_sum_step, pick_step, put_step, keep_step, loop_step, group_step>;

// The elements that a task needs for a sum of selections: the sum of a block, the rows of some
// experts where these are columns of the result, and sorted entries with their tokens and the end
// of each expert's.
inline extent selection_sum_scratch(const selection_sum_step& s, extent element_bytes) {
  return s.rows_of_scratch() * s.N + s.sorted_entries() +
         divide_up((s.experts + 1 + s.sorted_entries()) * sizeof(std::uint32_t), element_bytes);
}

// What a task needs for a sum over tokens that is a product of matrices: rows of a transposed block
// of tokens and columns of a packed one, so many of both at a time. Fewer rows and columns, and
// longer blocks, suit other kernels better.
struct token_product_room {
  static constexpr extent least_rows = 14, most_rows = 512, least_columns = 32, columns = 448,
                          put_columns = 128, most_block = 512, pad = 16;

  // Rows that are a power of two apart would share sets of L1.
  static constexpr extent row_size(extent block) { return round_up(block, pad) + pad; }

  // Returns the elements for a step, or more.
  static extent size(const token_sum_step& s) {
    return size(s.out, s.b.exists() && s.summed.empty(), s.block);
  }
  static extent size(const expert_sum_step& s) {
    return size(s.out, s.b.at.exists() && s.summed.empty(), s.block);
  }

 private:
  static extent size(std::span<const nest_axis> out, bool is_product, extent block) {
    extent elements = 1;
    for (const nest_axis& x : out) elements *= x.length;
    if (!is_product || block > most_block || elements < least_rows * least_columns) return 0;
    return std::min(most_rows, elements / least_columns) * (row_size(block) + put_columns) +
           columns * block;
  }
};

// The elements that a task needs for a sum by experts: the rows of some blocks' tokens, and
// their entries sorted by expert.
inline extent expert_sum_scratch(const expert_sum_step& s, extent element_bytes) {
  const extent numbers = 2 * s.experts + 1 + 2 * s.together * s.keep;
  return token_product_room::size(s) + s.together * (s.a.size + s.b.size) +
         divide_up(numbers * sizeof(std::uint32_t), element_bytes);
}

// Consecutive steps that make each row from the same row of what they read. Several threads can
// share the rows.
struct row_range {
  extent first, end;  // of a list of steps
  extent least;       // rows that are worth to be handed to another thread

  // A few parts for each thread, because threads are interrupted.
  extent parts(extent rows, extent threads) const {
    constexpr extent each = 4;
    return threads == 1 ? 1 : std::clamp<extent>(rows / least, 1, each * threads);
  }
  bool operator==(const row_range&) const = default;
};

struct loop_step {  // `length` units in chunks
  char label = 0;
  extent length = 0, chunk = 0;
  vector<step> body;
  vector<row_range> shared{};  // of the body
};

// For each expert, the rows of its tokens in chunks. It sets c to 0 first, and c is complete after
// it.
struct group_step {
  std::string text;
  view selection, c;
  extent experts = 0, keep = 0, columns = 0;
  extent rows = 0;     // rows of a chunk
  extent scratch = 0;  // the offset in the arena of the lists of tokens
  vector<step> body;   // its last step puts the results
  vector<epilogue> epilogues{};
};

// Returns the elements that the lists of a group take: a start and a place for each expert, and
// token and position of each selected entry.
constexpr extent group_scratch(extent experts, extent keep, extent tile, extent element_bytes) {
  return divide_up((2 * experts + 1 + 2 * tile * keep) * sizeof(std::uint32_t), element_bytes);
}

// Threads share a group whose tokens select so many experts: each expert is one thread's. Fewer
// experts would end at too different times.
constexpr bool shares_experts(double busy, extent threads) {
  return threads > 1 && busy >= 3 * static_cast<double>(threads);
}

}  // namespace fmoe::plan
