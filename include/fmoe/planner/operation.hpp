// SPDX-License-Identifier: MIT
// One operation of a program: a head that all kinds share, and a small struct for each kind, so
// that a field exists only where it means something. Labels are local to an operation.
#pragma once

#include <algorithm>
#include <cstdint>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/number_function.hpp>
#include <fmoe/base/pairs.hpp>
#include <fmoe/base/variant.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::planner {

// The numbers of a value and of a group in their program.
enum class value_id : std::uint32_t { none = ~std::uint32_t{0} };
enum class group_id : std::uint32_t { none = ~std::uint32_t{0} };

// A value and the names of its axes.
struct use {
  value_id value = value_id::none;
  axis_labels labels;
};

// A change of a finished row: by a function of one number, or with another operand, which may
// repeat along leading axes.
struct pass {
  pass_kind what = pass_kind::map;
  number_function f{};  // of a map
  value_id other = value_id::none;
  bool by_expert = false;  // in a group: the first axis of the other operand is the experts
};

// Two operands, as the order pass leaves them. The skip and match passes make each a gather, a
// gemm, a batched or a pointwise operation.
struct product_op {
  constexpr const char* name() const { return "product"; }
};

// An activation times a constant.
struct gemm_op {
  constexpr const char* name() const { return "gemm"; }
};

// Any other pair of operands: one small product for each token.
struct batched_op {
  constexpr const char* name() const { return "batched"; }
};

// A selection times a constant: the selected rows, weighted and summed.
struct gather_op {
  constexpr const char* name() const { return "gather"; }
};

// A selection times a constant of its last axis: a selection.
struct rescale_op {
  constexpr const char* name() const { return "rescale"; }
};

// A selection times a function of the product of a row and the constant's selected rows: a
// selection. Or that function where the selection is above 0, or for each of its entries.
struct sample_op {
  bool multiplies = true;
  bool weighs = true;

  constexpr const char* name() const { return "sample"; }
};

// One operand: the sum over the labels that the result does not have, in any order of axes.
struct reduce_op {
  constexpr const char* name() const { return "reduce"; }
};

// The operand itself, and then the passes.
struct pointwise_op {
  constexpr const char* name() const { return "pointwise"; }
};

// A function of each row. A second operand is its bound.
struct row_function_op {
  row_function fn{};
  double parameter = 0;
  grouping groups{};

  constexpr const char* name() const { return fmoe::name_of(fn); }
};

// One number of each row.
struct row_norm_op {
  row_norm which{};

  constexpr const char* name() const { return fmoe::name_of(which); }
};

// A 1 after each row.
struct append_op {
  constexpr const char* name() const { return "append"; }
};

// A selection of entries of each row. A second operand is what they are ranked by, if not by
// themselves.
struct select_op {
  selection_rule rule{};

  constexpr const char* name() const { return detail::name_of(rule.what); }
};

// A selection from a product with a parameter, which makes only few scores in full. The third
// operand is scratch.
struct screen_op {
  selection_rule rule{};

  constexpr const char* name() const { return "screen"; }
};

// A number of each entry that a selection keeps.
struct kept_op {
  kept_part what{};

  constexpr const char* name() const { return detail::name_of(what); }
};

// A selection as a dense row.
struct expand_op {
  constexpr const char* name() const { return "expand"; }
};

// Neighbours along an axis of the operand; the result may lack the axis if it is one entry.
struct slice_op {
  extent first = 0;
  extent axis = 0;  // of the operand's labels

  constexpr const char* name() const { return "slice"; }
};

// Sums of pairs, [..., s^2] -> [..., 2, s]: over the second members, then over the first ones.
struct unpair_op {
  constexpr const char* name() const { return "unpair"; }
};

struct concat_op {
  extent axis = 0;  // of the result's labels

  constexpr const char* name() const { return "concat"; }
};

// The numbers of an operand at the kept entries of a selection, with places instead of experts. Or
// the other way: numbers by places as rows of all experts, 0 where nothing is kept.
struct take_op {
  bool spreads = false;

  constexpr const char* name() const { return "take"; }
};

// A selection with other numbers, one for each place.
struct weigh_op {
  constexpr const char* name() const { return "weigh"; }
};

// A selection of scores, those of 0 among them, with a weighting of them. A second operand has all
// scores.
struct reweigh_op {
  weighting weights{};
  bool keeps_zeros = false;  // as selection_rule::keeps_zeros

  constexpr const char* name() const { return "reweigh"; }
};

// In a group: the rows of the selected tokens; if the operand has the axis of experts, those of the
// expert, or those of its place among the token's entries.
struct pick_op {
  bool by_place = false;

  constexpr const char* name() const { return "pick"; }
};

// The end of a group: for each token the sum of the rows of its experts, weighted by the selection.
struct put_op {
  constexpr const char* name() const { return "put"; }
};

// The end of a group: the rows of each token's experts, by their places in the selection.
struct keep_op {
  constexpr const char* name() const { return "keep"; }
};

// For each expert of a selection, the sum over the tokens that selected it, and over the labels
// that the result does not have, of one or two operands with places instead of experts.
struct expert_sum_op {
  constexpr const char* name() const { return "expert_sum"; }
};

// The sum over the tokens of a call, and over the labels that the result does not have, of one or
// two operands with one row for each token.
struct token_sum_op {
  constexpr const char* name() const { return "token_sum"; }
};

// The sum that it starts from, computed again without the pairs where it has one.
struct exclude_op {
  pair_set left_out{};
  axis_labels masked{};  // the labels of a pair: the first one is summed, whatever its place in a
                         // pair
  bool swapped = false;  // the first label is the second one of a pair

  constexpr const char* name() const { return "exclude"; }
};

struct operation {
  using kind =
      variant<product_op, gemm_op, batched_op, gather_op, rescale_op, sample_op, reduce_op,
              pointwise_op, row_function_op, row_norm_op, append_op, select_op, kept_op, screen_op,
              expand_op, slice_op, unpair_op, concat_op, take_op, weigh_op, reweigh_op, pick_op,
              put_op, keep_op, token_sum_op, expert_sum_op, exclude_op>;

  kind what;
  vector<use> in;
  use out;
  vector<pass> passes{};            // applied to the result while it is in cache
  value_id start = value_id::none;  // the sum continues this value instead of starting from zero
  group_id group = group_id::none;  // runs for each expert, on the rows that selected it
  char expert = 0;  // the label that operands of a group have for the axis of experts

  bool in_group() const { return group != group_id::none; }
};

// Is the operation of one of these kinds?
template <class... Kinds>
bool is(const operation& o) {
  return (holds_alternative<Kinds>(o.what) || ...);
}

// What the operation has as one of this kind, which it must be.
template <class Kind>
const Kind& as(const operation& o) {
  return get<Kind>(o.what);
}
template <class Kind>
Kind& as(operation& o) {
  return get<Kind>(o.what);
}

// True if both operations have the same operands.
inline bool has_operands_of(const operation& a, const operation& b) {
  return std::ranges::equal(a.in, b.in, {}, &use::value, &use::value);
}

// How messages and tests call the operation: "gemm", "softmax", "top_k".
inline const char* name_of(const operation& o) {
  return visit([](const auto& kind) { return kind.name(); }, o.what);
}

// True if the operation needs its operands for all tokens before it makes a row.
inline bool is_barrier(const operation& o) {
  return is<select_op>(o) && as<select_op>(o).rule.what == selection_rule::kind::expert_choice;
}

// Calls f with each value that the operation reads; one that it reads twice comes twice.
template <class F>
void each_read(const operation& o, const F& f) {
  if (o.start != value_id::none) f(o.start);
  for (const use& u : o.in) f(u.value);
  for (const pass& p : o.passes)
    if (p.other != value_id::none) f(p.other);
}

// The values that the operation reads; one that it reads twice stands twice.
inline vector<value_id> reads(const operation& o) {
  vector<value_id> values;
  each_read(o, [&](value_id v) { values.push_back(v); });
  return values;
}

}  // namespace fmoe::planner
