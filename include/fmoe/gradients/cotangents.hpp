// SPDX-License-Identifier: MIT
// What reverse mode knows while it goes through a graph from a result to its operands: for each
// node the parts of its cotangent, which is the gradient of the result with respect to the node.
#pragma once

#include <utility>

#include <fmoe/base/vector.hpp>
#include <fmoe/ir/algebra.hpp>

namespace fmoe::reverse {

using namespace detail;
using ir::node_id;

class cotangents {
 public:
  // Cotangents of the nodes that the graph has now and that `needed` marks. Rules add more nodes.
  cotangents(ir::graph& graph, list_by<node_id, bool> needed)
      : g(graph),
        needed_(std::move(needed)),
        parts_(needed_.size()) {}

  ir::graph& g;

  bool needs(node_id id) const { return needed_.contains(id) && needed_[id]; }
  bool has(node_id id) const { return needs(id) && !parts_[id].empty(); }

  // Adds a part to the cotangent of a node.
  void give(node_id to, node_id part) {
    if (needs(to)) parts_[to].push_back(part);
  }

  // Returns the sum of the parts, in the order in which they came.
  node_id sum(node_id id) {
    vector<node_id>& parts = parts_[id];
    node_id total = parts[0];
    for (std::size_t k = 1; k < parts.size(); ++k) total = g.add(total, parts[k]);
    parts = {total};
    return total;
  }

 private:
  list_by<node_id, bool> needed_;
  list_by<node_id, vector<node_id>> parts_;
};

}  // namespace fmoe::reverse
