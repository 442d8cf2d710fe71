// SPDX-License-Identifier: MIT
// What lowered.hpp declares.
#pragma once

#include <algorithm>

#include <fmoe/expr/lowered.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::detail {

struct lowered::graph {
  ir::graph nodes{};
  ir::node_list roots{vector<ir::node_id>()};
  extent arguments = 0;
};

FMOE_INLINE lowered::lowered(std::span<const dynamic::expression> results, extent rows)
    : made_(std::make_unique<graph>()) {
  ir::graph& g = made_->nodes;
  g.set_argument_rows(rows);
  for (const dynamic::expression& e : results) made_->roots.push_back(e.lower(g));
  g.fix_arguments();
  for (const ir::node_id id : g.ids())
    if (const auto* l = get_if<ir::leaf_node>(&g[id].op); l != nullptr && l->argument >= 0)
      made_->arguments = std::max(made_->arguments, static_cast<extent>(l->argument) + 1);
  if (made_->arguments == 0) g.find_inputs(made_->roots);
}

FMOE_INLINE lowered::lowered(lowered&&) noexcept = default;
FMOE_INLINE lowered& lowered::operator=(lowered&&) noexcept = default;
FMOE_INLINE lowered::~lowered() = default;

FMOE_INLINE const ir::graph& lowered::nodes() const { return made_->nodes; }
FMOE_INLINE const ir::node_list& lowered::roots() const { return made_->roots; }
FMOE_INLINE extent lowered::arguments() const { return made_->arguments; }

FMOE_INLINE std::vector<extent> lowered::shape(extent result) const {
  const auto shape = nodes().shape(roots()[result]);
  return {shape.begin(), shape.end()};
}

FMOE_INLINE extent lowered::width(extent result) const {
  return nodes().extent_of(nodes()[roots()[result]].axes.back());
}

}  // namespace fmoe::detail
