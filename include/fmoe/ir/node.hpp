// SPDX-License-Identifier: MIT
// The nodes of an expression's graph: a small struct for each kind, and the operands of a node.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include <fmoe/arrays/quantized_layout.hpp>
#include <fmoe/arrays/tensor.hpp>
#include <fmoe/base/dtype.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/base/number_function.hpp>
#include <fmoe/base/pairs.hpp>
#include <fmoe/base/variant.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::ir {

enum class node_id : std::uint32_t {};
enum class axis_id : std::uint32_t {};

// The nodes that are planned together: one, or several whose common parts are computed once.
struct node_list : vector<node_id> {
  node_list(node_id one) : vector(1, one) {}
  explicit node_list(vector several) : vector(std::move(several)) {}
};

struct leaf_node {
  std::shared_ptr<storage> data;  // null for an argument
  dtype type = dtype::float32;
  vector<extent> shape;
  bool parameter = false;
  // The number of an argument, bound at the call of a compiled layer; -1 for other leaves.
  int argument = -1;
  // Copied from an array of the user, once for every place that names it; equal copies are one
  // leaf.
  bool copied = false;
  block_axis axis{};  // of weights of 8 bits
  // The version of the elements when the expression was made.
  std::uint64_t version = 0;
  // Others may write the elements while an executable has them: it copies what it goes on reading.
  bool may_change = false;
  bool operator==(const leaf_node& o) const {
    return std::tie(type, shape, parameter, argument, copied, axis) ==
               std::tie(o.type, o.shape, o.parameter, o.argument, o.copied, o.axis) &&
           (same_elements(o) || (copied && same_bytes(o)));
  }
  bool same_elements(const leaf_node& o) const {
    if (data == nullptr || o.data == nullptr) return data == o.data;
    return data->same_elements(*o.data);
  }
  stored_numbers numbers() const {
    return {type, data == nullptr ? nullptr : data->data(), element_count(shape), axis};
  }
  bool same_bytes(const leaf_node& o) const {
    const extent bytes = numbers().bytes();
    return bytes == 0 || std::memcmp(data->data(), o.data->data(), bytes) == 0;
  }
};

struct einsum_node {
  vector<node_id> args;
  std::string subscripts;
  std::optional<node_id> unmasked{};  // if an operand is a mask: the sum without it, once expanded
  // The letters of the labels do not matter.
  bool operator==(const einsum_node& o) const {
    return args == o.args && unmasked == o.unmasked && same_but_names(subscripts, o.subscripts);
  }
};

struct map_node {
  number_function f;
  node_id arg;
  bool operator==(const map_node&) const = default;
};

struct join_node {  // of two operands, element by element: any kind but map and multiply
  pass_kind what;
  node_id left, right;  // the right one may have fewer axes, which are the last ones
  bool operator==(const join_node&) const = default;
};

struct row_function_node {  // a function of each row, which is the last axis
  row_function fn;
  double parameter;
  node_id arg;
  std::optional<node_id> bound;  // one number for each row
  grouping groups{};             // of best_groups
  bool operator==(const row_function_node&) const = default;
};

struct row_norm_node {  // one number of each row, which is the last axis
  row_norm which;
  node_id arg;
  bool operator==(const row_norm_node&) const = default;
};

struct select_node {
  selection_rule rule;
  node_id arg;
  std::optional<node_id> ranked;  // what entries are ranked by, if not by themselves
  bool operator==(const select_node&) const = default;
};

struct kept_node {  // one number of each kept entry, by ascending index
  kept_part what;
  node_id arg;  // a selection
  bool operator==(const kept_node&) const = default;
};

struct append_node {  // appends a 1 after the last entry of each row
  node_id arg;
  bool operator==(const append_node&) const = default;
};

struct concat_node {
  vector<node_id> args;
  extent axis;
  bool operator==(const concat_node&) const = default;
};

struct slice_node {  // some neighbours along an axis
  node_id arg;
  extent axis, first, count;
  bool operator==(const slice_node&) const = default;
};

// Numbers of pairs, [..., s^2], become sums for each member of a pair, [..., 2, s]: over the pairs
// e = i s + j with this i, then with this j.
struct unpair_node {
  node_id arg;
  bool operator==(const unpair_node&) const = default;
};

struct mask_node {  // 0 at the pairs, 1 elsewhere; only an operand of einsum
  pair_set left_out;
  extent rows, columns;
  bool operator==(const mask_node&) const = default;
};

struct node {
  variant<leaf_node, einsum_node, map_node, join_node, row_function_node, row_norm_node,
          select_node, kept_node, append_node, concat_node, slice_node, unpair_node, mask_node>
      op;
  vector<axis_id> axes;
};

// A node of this kind, const or not.
template <class Node, class Kind>
concept node_of = std::same_as<std::remove_const_t<Node>, Kind>;

// Calls f with the number of each operand, in their order, which f may change if the node is not
// const. No overload is general, so that a new kind without one does not compile.
template <node_of<leaf_node> Node, class F>
void each_operand(Node&, const F&) {}
template <node_of<mask_node> Node, class F>
void each_operand(Node&, const F&) {}
template <node_of<einsum_node> Node, class F>
void each_operand(Node& n, const F& f) {
  for (auto& arg : n.args) f(arg);
  if (n.unmasked) f(*n.unmasked);
}
template <node_of<concat_node> Node, class F>
void each_operand(Node& n, const F& f) {
  for (auto& arg : n.args) f(arg);
}
template <node_of<map_node> Node, class F>
void each_operand(Node& n, const F& f) {
  f(n.arg);
}
template <node_of<kept_node> Node, class F>
void each_operand(Node& n, const F& f) {
  f(n.arg);
}
template <node_of<append_node> Node, class F>
void each_operand(Node& n, const F& f) {
  f(n.arg);
}
template <node_of<slice_node> Node, class F>
void each_operand(Node& n, const F& f) {
  f(n.arg);
}
template <node_of<unpair_node> Node, class F>
void each_operand(Node& n, const F& f) {
  f(n.arg);
}
template <node_of<join_node> Node, class F>
void each_operand(Node& n, const F& f) {
  f(n.left);
  f(n.right);
}
template <node_of<row_norm_node> Node, class F>
void each_operand(Node& n, const F& f) {
  f(n.arg);
}
template <node_of<row_function_node> Node, class F>
void each_operand(Node& n, const F& f) {
  f(n.arg);
  if (n.bound) f(*n.bound);
}
template <node_of<select_node> Node, class F>
void each_operand(Node& n, const F& f) {
  f(n.arg);
  if (n.ranked) f(*n.ranked);
}
template <node_of<node> Node, class F>
void each_operand(Node& n, const F& f) {
  visit([&](auto& kind) { each_operand(kind, f); }, n.op);
}

// The operands of a node, in their order; one that it has twice stands twice.
inline vector<node_id> operands(const node& n) {
  vector<node_id> r;
  each_operand(n, [&](node_id id) { r.push_back(id); });
  return r;
}

}  // namespace fmoe::ir
