// SPDX-License-Identifier: MIT
// The planning of a layer over ranks.
#pragma once

#include <fmoe/distributed/stage_planner.hpp>
#include <fmoe/ir/live.hpp>

namespace fmoe::detail {

// Returns what a cut makes of each node. Throws value_error if the rows of the layer depend on each
// other.
inline list_by<ir::node_id, node_axes> axes_of_nodes(const ir::graph& g, const ir::node_list& roots,
                                                     const std::vector<cut_parameter>& cut) {
  const auto tokens = planner::token_search(g, roots, true).axes();
  expects<value_error>(tokens.has_value(), "[shard] the layer has no axis of tokens");
  std::vector<ir::axis_id> labels;
  list_by<ir::node_id, node_axes> axes(g.size());
  for (const ir::node_id id : g.ids()) {
    axes[id].token = (*tokens)[id];
    bool reads_tokens = false;
    ir::each_operand(g[id], [&](ir::node_id o) { reads_tokens |= axes[o].token.has_value(); });
    expects<value_error>(!reads_tokens || axes[id].token,
                         "[shard] the layer sums over tokens, which are cut over the ranks");
    const auto* l = get_if<ir::leaf_node>(&g[id].op);
    if (l == nullptr || l->data == nullptr) continue;
    for (const cut_parameter& c : cut) {
      if (!c.whole.elements->same_elements(*l->data)) continue;
      const std::optional<extent> axis = axis_of_label(l->shape, c);
      expects<value_error>(axis.has_value(),
                           "[shard] the layer reads a parameter that is cut in another shape");
      axes[id].is_cut_leaf = true;
      labels.push_back(g[id].axes[*axis]);
    }
  }
  for (const ir::node_id id : g.ids())
    for (extent k = 0; k < g.rank(id); ++k)
      for (const ir::axis_id label : labels) {
        if (!g.same(g[id].axes[k], label)) continue;
        axes[id].has_two_labels |= axes[id].label && axes[id].label != k;
        axes[id].label = k;
      }
  return axes;
}

// The plan of a layer in one part: its graph.
inline stage_plan plan_of_whole(const ir::graph& g, const ir::node_list& roots) {
  stage_plan plan;
  const auto add = [&](ir::node_id id) {
    auto row = g.shape(id);
    row.erase(row.begin());
    return plan.arrays.add({{id, spread::tokens}, std::move(row), true});
  };
  for (const ir::node_id id : g.ids()) {
    const auto* l = get_if<ir::leaf_node>(&g[id].op);
    if (l == nullptr || l->argument < 0) continue;
    plan.inputs.resize(std::max(plan.inputs.size(), static_cast<extent>(l->argument) + 1));
    plan.inputs[static_cast<extent>(l->argument)] = add(id);
  }
  plan.result = add(roots[0]);
  plan.steps.push_back(stage_graph{g, roots, plan.inputs, {plan.result}, true});
  return plan;
}

FMOE_INLINE stage_plan plan_of(const ir::graph& g, const ir::node_list& roots, const axis_cut& cut,
                               const std::vector<cut_parameter>& parameters, extent tokens,
                               extent element_bytes, const network_costs& costs) {
  const ir::live_graph part = ir::live(g, roots);
  if (cut.parts == 1) return plan_of_whole(part.nodes, part.roots);
  const planner::expanded_graph pairs = planner::expand(part.nodes, part.roots, {});
  const placement_problem problem{pairs.nodes,
                                  pairs.roots,
                                  axes_of_nodes(pairs.nodes, pairs.roots, parameters),
                                  static_cast<double>(cut.parts),
                                  element_bytes,
                                  costs};
  const placement found = placement_search(problem).find();
  return stage_planner(problem, found, cut, parameters, tokens).take();
}

}  // namespace fmoe::detail
