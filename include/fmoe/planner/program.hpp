// SPDX-License-Identifier: MIT
// The working form of the planner: values, and in order the operations that make them. The token
// axis is implicit: a value of scope `token` has one row for each token, and its labels name the
// other axes. Labels are local to an operation.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include <fmoe/base/functions.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::planner {

// How often a value is made: once for all calls, once for each call, or once for each token.
enum class value_scope : std::uint8_t { constant, call, token };

struct value {
  std::vector<extent> shape;  // of one token's row, in the order of memory
  value_scope scope = value_scope::token;
  int leaf = -1;  // its place among the leaves, for inputs and parameters
  bool parameter = false;
  bool argument = false;   // a leaf that a call binds
  extent keep = 0;         // a selection of at most this many entries of its last axis
  extent expected = 0;     // a selection of about this many entries, which cost counts
  bool selection = false;  // made by a select operation and not yet expanded
  extent each = 0;  // the entries of the two lists for which a selection of their sums needs room
  std::string names{};  // names of its axes in the operation that made it
  int group =
      // A value of a group has one row for each selected (token, expert), rather than for each
      // token.
      -1;

  bool is_constant() const { return scope == value_scope::constant; }
  bool per_token() const { return scope == value_scope::token; }
  extent size() const { return element_count(shape); }
  extent rows() const {
    return element_count(std::span(shape).first(shape.size() - 1));
  }  // along the last axis
};

struct use {  // a value and the names of its axes
  int value = -1;
  std::string labels;
};

// A function of a finished row: a map, or a sum or product with another operand, which may repeat
// along leading axes.
struct pass {
  enum class kind : std::uint8_t { map, add, multiply } what;
  pointwise fn{};
  double parameter = 0;
  int other = -1;
  bool by_expert = false;  // in a group: the first axis of the other operand is the experts
};

struct operation {
  enum class kind : std::uint8_t {
    product,  // two operands, as the order pass leaves them; the skip and match passes give each
              // its kind below
    gemm,     // an activation times a constant
    batched,  // any other pair: one small product for each token
    gather,   // a selection times a constant: the selected rows, weighted and summed
    rescale,  // a selection times a constant of its last axis: a selection
    sample,   // a selection times a function of the product of a row and the constant's selected
              // rows: a selection
    reduce,  // one operand: sum over the labels that the result does not have, in any order of axes
    pointwise,
    gate,
    append,  // a 1 after each row
    select,
    // a selection from a product with a parameter, which makes only few scores in full; the third
    // operand is scratch
    screen,
    expand,  // a selection as a dense row
    slice,   // one entry of the axis that the result does not have
    concat,
    // in a group: the rows of the selected tokens; if the operand has the axis of experts, those of
    // the expert
    pick,
    // the end of a group: for each token the sum of the rows of its experts, weighted by the
    // selection
    put,
    // the sum over the tokens of a call and over the labels that the result does not have, of one
    // or two operands with one row for each token
    token_sum,
    exclude,  // the sum that it starts from, computed again without the pairs where it has one
  } what;
  std::vector<use> in;
  use out;
  std::vector<pass> passes;  // applied to the result while it is in cache
  int start = -1;            // the sum continues this value instead of starting from zero
  extent axis = 0;           // concat
  extent index = 0;          // slice
  fmoe::gate fn{};           // gate, whose bound is the second operand
  double parameter = 0;      // gate
  selection_rule rule{};     // select
  int group = -1;            // runs for each expert, on the rows that selected it
  char expert = 0;           // the label that operands of a group have for the axis of experts
  pair_set left_out{};       // exclude
  std::string masked{};      // exclude: the labels of a pair; the first one is summed, whatever its
                             // place in a pair
  bool swapped = false;      // exclude: the first label is the second one of a pair
};

constexpr const char* name_of(operation::kind k) {
  constexpr std::array names{"product", "gemm",   "batched",   "gather", "rescale",
                             "sample",  "reduce", "pointwise", "gate",   "append",
                             "select",  "screen", "expand",    "slice",  "concat",
                             "pick",    "put",    "token_sum", "exclude"};
  return names[static_cast<extent>(k)];
}

// True if the operation needs its operands for all tokens before it makes a row.
inline bool is_barrier(const operation& o) {
  return o.what == operation::kind::select && o.rule.what == selection_rule::kind::expert_choice;
}

// Operations that run once for each expert, on the tokens that selected it.
struct expert_group {
  int selection;
  extent experts, keep, expected;
};

struct program {
  std::vector<ir::leaf_node> leaves;
  std::vector<value> values;
  std::vector<operation> operations;
  std::vector<expert_group> groups;
  std::vector<int> results;  // no value twice
  bool tokens = true;        // false: no axis counts tokens, every value is one row
  extent token_count = 1;    // of the graph's inputs

  int add(value v) {
    values.push_back(std::move(v));
    return static_cast<int>(values.size()) - 1;
  }
  value& operator[](int v) { return values[static_cast<extent>(v)]; }
  const value& operator[](int v) const { return values[static_cast<extent>(v)]; }

  extent extent_of(const use& u, char label) const {
    return (*this)[u.value].shape[u.labels.find(label)];
  }
  extent size_of(const use& u, const std::string& labels) const {
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
  use make(operation::kind what, std::vector<use> in, std::string labels, bool selection = false,
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
    operations.push_back({what, std::move(in), out, {}});
    return out;
  }

  bool is_result(int v) const { return std::ranges::count(results, v) != 0; }

  // Calls f with each value that an operation reads, as often as it does.
  template <class F>
  static void each_read(const operation& o, const F& f) {
    if (o.start >= 0) f(o.start);
    for (const use& u : o.in) f(u.value);
    for (const pass& p : o.passes)
      if (p.other >= 0) f(p.other);
  }
  // How often an operation reads v.
  static int reads(const operation& o, int v) {
    int n = 0;
    each_read(o, [&](int read) { n += read == v; });
    return n;
  }
  // Returns how often operations read v; an operation that reads it twice counts twice. Being a
  // result counts once more.
  int uses(int v) const {
    int n = is_result(v);
    for (const operation& o : operations) n += reads(o, v);
    return n;
  }
  // Returns the first operation that reads v, -1 if there is none.
  int consumer(int v) const {
    const auto at =
        std::ranges::find_if(operations, [&](const operation& o) { return reads(o, v) > 0; });
    return at == operations.end() ? -1 : static_cast<int>(at - operations.begin());
  }
  // Does the operation run once for a whole call rather than for each tile of tokens?
  bool runs_per_call(const operation& o) const {
    return is_barrier(o) || (*this)[o.out.value].scope == value_scope::call;
  }
  // The first operation at or behind this one that runs once a call; equal for operations that run
  // in the same pass over the tiles.
  int stage(int operation) const {
    while (operation < static_cast<int>(operations.size()) &&
           !runs_per_call(operations[static_cast<extent>(operation)]))
      ++operation;
    return operation;
  }
  // Do the rows of v, one per token, outlive the pass over the tiles that makes them?
  bool spans_stages(int v) const {
    const int maker = producer(v);
    if (maker < 0 || is_result(v)) return false;
    if (runs_per_call(operations[static_cast<extent>(maker)])) return true;
    for (int k = maker; k < static_cast<int>(operations.size()); ++k) {
      const operation& reader = operations[static_cast<extent>(k)];
      if (reads(reader, v) > 0 && (stage(k) != stage(maker) || runs_per_call(reader))) return true;
    }
    return false;
  }
  // Returns the operation that makes v, -1 for leaves.
  int producer(int v) const {
    const auto at =
        std::ranges::find_if(operations, [&](const operation& o) { return o.out.value == v; });
    return at == operations.end() ? -1 : static_cast<int>(at - operations.begin());
  }
};

// Returns the labels of `of` that satisfy the condition, in their order.
template <class Condition>
std::string labels_where(const std::string& of, Condition condition) {
  std::string r;
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

struct label_groups {
  std::string batch, free, summed, vector;
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
  return g.summed.empty() && g.vector.empty() && o.out.labels == o.in[0].labels &&
         o.in[0].labels.ends_with(o.in[1].labels);
}

inline operation as_pointwise(operation o) {
  o.what = operation::kind::pointwise;
  o.passes = {{pass::kind::multiply, {}, 0, o.in[1].value}};
  o.in.pop_back();
  return o;
}

}  // namespace fmoe::planner
