// SPDX-License-Identifier: MIT
// A node of an expression's graph. Each kind is a struct in a file of ops/, which has its rules,
// templates on the pass that asks: each_operand; add_to_hash, if many nodes may have the same
// operands; axes, which are those of the result, and throws if the operands do not fit; token_axis
// (planner/tokens.hpp); lower, its operations in a program (planner/lower.hpp); pull, which gives
// its operands their cotangents (gradients/cotangents.hpp); and list_ways, how it can be cut over
// ranks (distributed/placement.hpp).
#pragma once

#include <fmoe/base/vector.hpp>
#include <fmoe/ops/kinds.hpp>

namespace fmoe::ir {

// The nodes that are planned together: one, or several whose common parts are computed once.
struct node_list : vector<node_id> {
  node_list(node_id one) : vector(1, one) {}
  explicit node_list(vector several) : vector(std::move(several)) {}
};

struct node {
  node_kind op;
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
