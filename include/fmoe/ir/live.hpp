// SPDX-License-Identifier: MIT
// Live: the part of a graph that some results need. Nodes that no result needs are neither planned
// nor computed.
#pragma once

#include <utility>

#include <fmoe/ir/graph.hpp>

namespace fmoe::ir {

// A graph of the nodes that some results need, in their order. It has the axes of the whole graph,
// so that an extent that only an unneeded node fixed stays known.
struct live_graph {
  graph nodes;
  node_list roots;  // the results, numbered as in `nodes`
};

inline live_graph live(const graph& whole, const node_list& roots) {
  list_by<node_id, bool> needed(whole.size(), false);
  const auto need = [&](node_id id) { needed[id] = true; };
  for (const node_id root : roots) need(root);
  for (extent i = whole.size(); i-- > 0;)
    if (const auto id = static_cast<node_id>(i); needed[id]) each_operand(whole[id], need);

  live_graph part{whole.without_nodes(), roots};
  list_by<node_id, node_id> number(whole.size());  // of each needed node in the part
  const auto renumber = [&](node_id& id) { id = number[id]; };
  for (const node_id id : whole.ids()) {
    if (!needed[id]) continue;
    node copy = whole[id];
    each_operand(copy, renumber);
    number[id] = part.nodes.append(std::move(copy));
  }
  for (node_id& root : part.roots) renumber(root);
  return part;
}

}  // namespace fmoe::ir
