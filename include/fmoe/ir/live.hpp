// SPDX-License-Identifier: MIT
// Live: the part of a graph that some results need. Nodes that no result needs are neither planned
// nor computed.
#pragma once

#include <utility>
#include <vector>

#include <fmoe/ir/graph.hpp>

namespace fmoe::ir {

// A graph of the nodes that some results need, in their order. It has the axes of the whole graph,
// so that an extent that only an unneeded node fixed stays known.
struct live_graph {
  graph nodes;
  node_list roots;  // the results, numbered as in `nodes`
};

inline live_graph live(const graph& whole, const node_list& roots) {
  std::vector<bool> needed(whole.size(), false);
  const auto need = [&](node_id id) { needed[static_cast<extent>(id)] = true; };
  for (const node_id root : roots) need(root);
  for (extent i = whole.size(); i-- > 0;)
    if (needed[i]) each_operand(whole[static_cast<node_id>(i)], need);

  live_graph part{whole.without_nodes(), roots};
  std::vector<node_id> number(whole.size());  // for each needed node its number in the part
  const auto renumber = [&](node_id& id) { id = number[static_cast<extent>(id)]; };
  for (extent i = 0; i < whole.size(); ++i) {
    if (!needed[i]) continue;
    node copy = whole[static_cast<node_id>(i)];
    each_operand(copy, renumber);
    number[i] = part.nodes.append(std::move(copy));
  }
  for (node_id& root : part.roots) renumber(root);
  return part;
}

}  // namespace fmoe::ir
