// SPDX-License-Identifier: MIT
// Reverse mode: goes through the nodes that a result is made of, readers first, and adds to the
// graph what their cotangents are made of. The new nodes are of the old kinds.
#pragma once

#include <span>

#include <fmoe/base/vector.hpp>
#include <fmoe/gradients/cotangents.hpp>

namespace fmoe::reverse {

// Marks the nodes that are some of these or depend on them.
inline list_by<node_id, bool> dependent(const ir::graph& g, std::span<const node_id> on) {
  list_by<node_id, bool> marked(g.size(), false);
  for (const node_id id : on) marked[id] = true;
  for (const node_id id : g.ids())
    ir::each_operand(g[id], [&](node_id operand) { marked[id] = marked[id] || marked[operand]; });
  return marked;
}

// Returns the gradients of the sum of roots[i] seeds[i] with respect to these nodes, and nothing
// where it is 0 everywhere. Throws value_error where a function has no derivative.
inline vector<std::optional<node_id>> gradients_of(ir::graph& g, std::span<const node_id> roots,
                                                   std::span<const node_id> seeds,
                                                   std::span<const node_id> wanted) {
  const extent forward = g.size();
  cotangents c(g, dependent(g, wanted));
  for (extent i = 0; i < roots.size(); ++i) c.give(roots[i], seeds[i]);
  for (extent i = forward; i-- > 0;) {
    const auto id = static_cast<node_id>(i);
    if (!c.has(id)) continue;
    const node_id cotangent = c.sum(id);
    const auto op = g[id].op;  // a copy, because the graph grows
    visit([&](const auto& kind) { kind.pull(c, id, cotangent); }, op);
  }
  vector<std::optional<node_id>> found;
  for (const node_id id : wanted)
    found.push_back(c.has(id) ? std::optional(c.sum(id)) : std::nullopt);
  return found;
}

}  // namespace fmoe::reverse
