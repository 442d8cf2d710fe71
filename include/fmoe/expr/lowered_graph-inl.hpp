// SPDX-License-Identifier: MIT
// What lowered_graph.hpp declares.
#pragma once

#include <algorithm>

#include <fmoe/expr/lowered_graph.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::detail {

struct lowered_graph::contents {
  ir::graph nodes{};
  ir::node_list roots{vector<ir::node_id>()};
  extent arguments = 0;
};

FMOE_INLINE lowered_graph::lowered_graph(std::span<const dynamic::expression> results, extent rows)
    : made_(std::make_unique<contents>()) {
  ir::graph& g = made_->nodes;
  g.set_argument_rows(rows);
  for (const dynamic::expression& e : results) made_->roots.push_back(e.lower(g));
  g.fix_arguments();
  for (const ir::node_id id : g.ids())
    if (const auto* l = get_if<ir::leaf_node>(&g[id].op); l != nullptr && l->argument >= 0)
      made_->arguments = std::max(made_->arguments, static_cast<extent>(l->argument) + 1);
  if (made_->arguments == 0) g.find_inputs(made_->roots);
}

FMOE_INLINE lowered_graph::lowered_graph(lowered_graph&&) noexcept = default;
FMOE_INLINE lowered_graph& lowered_graph::operator=(lowered_graph&&) noexcept = default;
FMOE_INLINE lowered_graph::~lowered_graph() = default;

FMOE_INLINE const ir::graph& lowered_graph::nodes() const { return made_->nodes; }
FMOE_INLINE const ir::node_list& lowered_graph::roots() const { return made_->roots; }
FMOE_INLINE extent lowered_graph::arguments() const { return made_->arguments; }

FMOE_INLINE std::vector<extent> lowered_graph::shape(extent result) const {
  const auto shape = nodes().shape(roots()[result]);
  return {shape.begin(), shape.end()};
}

FMOE_INLINE extent lowered_graph::width(extent result) const {
  return nodes().extent_of(nodes()[roots()[result]].axes.back());
}

}  // namespace fmoe::detail
