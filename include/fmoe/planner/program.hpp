// SPDX-License-Identifier: MIT
// The working form of the planner: values, and in order the operations that make them. The token
// axis is implicit: a value of scope `token` has one row for each token, and its labels name the
// other axes. Labels are local to an operation.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/base/list_by.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ir/graph.hpp>
#include <fmoe/planner/operation.hpp>

namespace fmoe::planner {

// How often a value is made: once for all calls, once for each call, or once for each token.
enum class value_scope : std::uint8_t { constant, call, token };

struct value {
  vector<extent> shape;  // of one token's row, in the order of memory
  value_scope scope = value_scope::token;
  std::optional<extent> leaf{};  // its place among the leaves, for inputs and parameters
  bool parameter = false;
  bool argument = false;   // a leaf that a call binds
  extent keep = 0;         // a selection of at most this many entries of its last axis
  extent expected = 0;     // a selection of about this many entries, which cost counts
  bool selection = false;  // made by a select operation and not yet expanded
  extent each = 0;  // the entries of the two lists for which a selection of their sums needs room
  axis_labels names{};  // names of its axes in the operation that made it
  // A value of a group has one row for each selected (token, expert), rather than for each token.
  group_id group = group_id::none;

  bool in_group() const { return group != group_id::none; }
  bool is_constant() const { return scope == value_scope::constant; }
  bool per_token() const { return scope == value_scope::token; }
  extent size() const { return element_count(shape); }
  // Returns the number of rows along the last axis.
  extent rows() const { return element_count(std::span(shape).first(shape.size() - 1)); }
};

// Operations that run once for each expert, on the tokens that selected it.
struct expert_group {
  value_id selection;
  extent experts, keep, expected;
};

struct program {
  vector<ir::leaf_node> leaves;
  list_by<value_id, value> values;
  vector<operation> operations;
  list_by<group_id, expert_group> groups;
  vector<value_id> results;  // no value occurs twice
  bool tokens = true;        // if false, no axis counts tokens and every value is one row
  extent token_count = 1;    // the tokens of the graph's inputs

  value_id add(value v) { return values.add(std::move(v)); }
  // Takes an operation out. Its place stays, so that those of others do, until close_gaps().
  operation take(extent place) {
    return std::exchange(operations[place], operation{product_op{}, {}, {}});
  }
  void close_gaps() {
    const auto is_gap = [](const operation& o) { return o.out.value == value_id::none; };
    operations.erase(std::remove_if(operations.begin(), operations.end(), is_gap),
                     operations.end());
  }
  value& operator[](value_id v) { return values[v]; }
  const value& operator[](value_id v) const { return values[v]; }

  extent extent_of(const use& u, char label) const {
    return (*this)[u.value].shape[u.labels.find(label)];
  }
  extent size_of(const use& u, const axis_labels& labels) const {
    extent n = 1;
    for (const char c : labels) n *= extent_of(u, c);
    return n;
  }
  // Returns the distance of neighbours along `label` in elements; for a diagonal the sum of its
  // distances, and 0 if the operand does not have the label.
  extent stride(const use& u, char label) const {
    extent n = 1, sum = 0;
    for (extent i = u.labels.size(); i-- > 0;) {
      if (u.labels[i] == label) sum += n;
      n *= (*this)[u.value].shape[i];
    }
    return sum;
  }

  // Adds an operation whose result has these labels.
  use make(operation_kind what, vector<use> in, axis_labels labels, bool selection = false,
           extent keep = 0) {
    value v;
    v.scope = value_scope::constant;
    v.parameter = true;
    for (const use& u : in) {
      v.scope = std::max(v.scope, (*this)[u.value].scope);
      v.parameter &= (*this)[u.value].parameter;
    }
    for (const char c : labels)
      for (const use& u : in)
        if (has(u.labels, c)) {
          v.shape.push_back(extent_of(u, c));
          break;
        }
    v.selection = selection;
    v.keep = keep;
    v.names = labels;
    const use out{add(std::move(v)), std::move(labels)};
    operations.push_back({.what = std::move(what), .in = std::move(in), .out = out});
    return out;
  }

  // Returns how often an operation reads v.
  static int reads(const operation& o, value_id v) {
    int n = 0;
    each_read(o, [&](value_id read) { n += read == v; });
    return n;
  }
  // True if the operation runs once for a whole call rather than for each tile of tokens.
  bool runs_per_call(const operation& o) const {
    return is_barrier(o) || (*this)[o.out.value].scope == value_scope::call;
  }
};

// True for a product whose right operand is constant.
inline bool multiplies_constant(const program& p, const operation& o) {
  return is<product_op>(o) && p[o.in[1].value].is_constant();
}

// Returns the labels of `of` that satisfy the condition, in their order.
template <class Condition>
axis_labels labels_where(std::string_view of, Condition condition) {
  axis_labels r;
  for (const char c : of)
    if (condition(c)) r += c;
  return r;
}

// The operation as subscripts, "ti,in->tn": 't' stands before the labels of what has one row per
// token.
inline std::string text_of(const program& p, const operation& o) {
  std::string text;
  const auto add = [&](const use& u) {
    if (p[u.value].per_token()) text += 't';
    text += u.labels;
  };
  for (const use& u : o.in) {
    if (&u != &o.in[0]) text += ',';
    add(u);
  }
  text += "->";
  add(o.out);
  return text;
}

// Returns the value with its axes in this order: itself, or the result of a new operation, which is
// part of the group if there is one.
inline use in_order(program& p, const use& u, const axis_labels& order,
                    vector<operation>& operations, group_id group = group_id::none) {
  if (u.labels == order) return u;
  value v = p[u.value];
  v.leaf.reset();
  v.shape.clear();
  for (const char c : order) v.shape.push_back(p.extent_of(u, c));
  const use permuted{p.add(std::move(v)), order};
  operations.push_back({.what = reduce_op{}, .in = {u}, .out = permuted, .group = group});
  return permuted;
}

// Removes the operations whose results nothing reads, also those that only such operations read.
inline void remove_unread(program& p) {
  list_by<value_id, bool> is_read(p.values.size(), false);
  const auto mark = [&](value_id v) { is_read[v] = true; };
  std::ranges::for_each(p.results, mark);
  for (extent k = p.operations.size(); k-- > 0;)
    if (is_read[p.operations[k].out.value]) each_read(p.operations[k], mark);
    else p.take(k);
  p.close_gaps();
}

struct label_groups {
  axis_labels batch, free, summed, vector;

  bool is_elementwise() const { return summed.empty() && vector.empty(); }
};

inline label_groups groups_of(const operation& o) {
  const auto &l = o.in[0].labels, &r = o.in[1].labels, &out = o.out.labels;
  return {labels_where(l, [&](char c) { return has(r, c) && has(out, c); }),
          labels_where(l, [&](char c) { return !has(r, c); }),
          labels_where(l, [&](char c) { return has(r, c) && !has(out, c); }),
          labels_where(r, [&](char c) { return !has(l, c); })};
}

// True if nothing is summed and the labels of the right operand are the last of the left one: then
// the product is a function of the left operand.
inline bool is_hadamard(const operation& o) {
  const label_groups g = groups_of(o);
  return g.is_elementwise() && o.out.labels == o.in[0].labels &&
         o.in[0].labels.ends_with(o.in[1].labels);
}

inline operation as_pointwise(operation o) {
  o.what = pointwise_op{};
  o.passes = {{pass_kind::multiply, {}, o.in[1].value}};
  o.in.pop_back();
  return o;
}

}  // namespace fmoe::planner
