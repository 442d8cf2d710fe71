// SPDX-License-Identifier: MIT
// A node of an expression's graph. Each kind is a struct in a file of ops/, which has its rules,
// templates on the pass that asks: each_operand; add_to_hash, if many nodes may have the same
// operands; axes, which are those of the result, and throws if the operands do not fit; token_axis
// (planner/tokens.hpp); lower, its operations in a program (planner/lower.hpp); pull, which gives
// its operands their cotangents (gradients/cotangents.hpp); and list_ways, how it can be cut over
// ranks (distributed/placement.hpp).
#pragma once

#include <fmoe/base/variant.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ops/append.hpp>
#include <fmoe/ops/concat.hpp>
#include <fmoe/ops/einsum.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/join.hpp>
#include <fmoe/ops/kept.hpp>
#include <fmoe/ops/leaf.hpp>
#include <fmoe/ops/map.hpp>
#include <fmoe/ops/mask.hpp>
#include <fmoe/ops/row_function.hpp>
#include <fmoe/ops/row_norm.hpp>
#include <fmoe/ops/select.hpp>
#include <fmoe/ops/slice.hpp>
#include <fmoe/ops/unpair.hpp>

namespace fmoe::ir {

// The nodes that are planned together: one, or several whose common parts are computed once.
struct node_list : vector<node_id> {
  node_list(node_id one) : vector(1, one) {}
  explicit node_list(vector several) : vector(std::move(several)) {}
};

struct node {
  variant<leaf_node, einsum_node, map_node, join_node, row_function_node, row_norm_node,
          select_node, kept_node, append_node, concat_node, slice_node, unpair_node, mask_node>
      op;
  vector<axis_id> axes;
};

// Calls f with the number of each operand, in their order, which f may change if the node is not
// const.
template <class Node, class F>
void each_operand(Node& n, const F& f) {
  visit([&](auto& kind) { kind.each_operand(kind, f); }, n.op);
}

// The operands of a node, in their order; one that it has twice stands twice.
inline vector<node_id> operands(const node& n) {
  vector<node_id> r;
  each_operand(n, [&](node_id id) { r.push_back(id); });
  return r;
}

}  // namespace fmoe::ir
