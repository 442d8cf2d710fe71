// SPDX-License-Identifier: MIT
// One operation of a program: a head that all kinds share, and a small struct for each kind, so
// that a field exists only where it means something. Labels are local to an operation. The kinds
// are in the files of ops/, with two rules: interpret, plain loops in double for the reference
// backend, and emit, which adds the steps of a plan.
#pragma once

#include <algorithm>
#include <cstdint>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/number_function.hpp>
#include <fmoe/base/pairs.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ops/kinds.hpp>

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

struct operation {
  operation_kind what;
  vector<use> in;
  use out;
  vector<pass> passes{};            // applied to the result while it is in cache
  value_id start = value_id::none;  // the sum continues this value instead of starting from zero
  group_id group = group_id::none;  // runs for each expert, on the rows that selected it
  char expert = 0;  // the label that operands of a group have for the axis of experts

  bool in_group() const { return group != group_id::none; }
  bool has_start() const { return start != value_id::none; }
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
  if (o.has_start()) f(o.start);
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
