// SPDX-License-Identifier: MIT
// The planning of a layer over ranks.
#pragma once

#include <fmoe/distributed/stage_planner.hpp>
#include <fmoe/ir/live.hpp>

namespace fmoe::detail {

// Returns what a cut makes of each node. Throws value_error if the rows of the layer depend on sums
// over tokens.
constexpr const char* sums_over_tokens =
    "[shard] the layer sums over tokens, which are cut over the ranks";
inline axis_list axes_of_nodes(const ir::graph& g, const ir::node_list& roots,
                               const std::vector<cut_parameter>& cut) {
  const auto tokens = planner::token_search(g, roots, true).axes();
  expects<value_error>(tokens.has_value(), "[shard] the layer has no axis of tokens");
  std::vector<ir::axis_id> labels;
  axis_list axes(g.size());
  for (const ir::node_id id : g.ids()) {
    axes[id].token = (*tokens)[id];
    bool reads_sums = false;
    ir::each_operand(g[id], [&](ir::node_id o) {
      reads_sums |= axes[o].is_sum;
      axes[id].is_sum |= !axes[id].token && (axes[o].token || axes[o].is_sum);
    });
    expects<value_error>(!reads_sums || axes[id].is_sum, sums_over_tokens);
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
inline stage_plan plan_of_whole(const ir::graph& g, const ir::node_list& roots,
                                const std::vector<spread>& ends) {
  stage_plan plan;
  const auto add = [&](ir::node_id id) {
    const auto shape = g.shape(id);
    return plan.arrays.add(
        {{id, spread::tokens}, {shape.begin() + 1, shape.end()}, token_set::own});
  };
  for (const ir::node_id id : g.ids()) {
    const auto* l = get_if<ir::leaf_node>(&g[id].op);
    if (l == nullptr || l->argument < 0) continue;
    plan.inputs.resize(std::max(plan.inputs.size(), static_cast<extent>(l->argument) + 1));
    plan.inputs[static_cast<extent>(l->argument)] = add(id);
  }
  stage_graph all{g, {}, plan.inputs, {}, token_set::own};
  for (extent k = 0; k < roots.size(); ++k) {
    const ir::node_id r = roots[k];
    const bool is_sum = ends[k] != spread::tokens;
    const auto shape = g.shape(r);
    const array_id made =
        is_sum
            ? plan.arrays.add({{r, spread::whole}, {shape.begin(), shape.end()}, token_set::none})
            : add(r);
    if (is_sum) plan.sums.push_back({made});
    else plan.results.push_back(made);
    all.roots.push_back(r);
    all.results.push_back(made);
  }
  plan.steps.push_back(std::move(all));
  return plan;
}

// Returns the selections along the label by which tokens can be routed.
inline std::vector<ir::node_id> routers_of(const placement_problem& p) {
  std::vector<ir::node_id> found;
  for (const ir::node_id id : p.nodes.ids()) {
    const auto* s = get_if<ir::select_node>(&p.nodes[id].op);
    const bool is_by_token = s != nullptr && s->rule.what != selection_rule::kind::expert_choice &&
                             p.axes[id].token == extent{0};
    // Rows of several selections reach nearly every rank, but where an expert is one row.
    const bool is_one = p.nodes.rank(id) == 2 ||
                        (s != nullptr && s->rule.what == selection_rule::kind::product_top_k);
    if (is_by_token && is_one && p.has_label(id) && p.axes[id].label == p.nodes.rank(id) - 1)
      found.push_back(id);
  }
  return found;
}

// True if ranks tell each other bounds of scores before they compute them in full, where a rank
// screens them: if calls have rows enough for two calls more, and no more than a tile may have.
inline bool tells_bounds(const stage_exchange& e, extent rows) {
  constexpr extent few = 64, many = 4096;
  return e.first < e.rule.keep && rows >= few && rows <= many;
}

// A graph whose only selection goes to a merge makes fewer entries than the merge may ask for.
inline void keep_first_best(stage_plan& plan, const placement_problem& p, const axis_cut& cut,
                            extent tokens) {
  const extent n = cut.length / cut.parts;
  for (auto& step : plan.steps) {
    auto* const e = get_if<stage_exchange>(&step);
    const bool has_best = e != nullptr && e->first != 0 && !has_scores(e->rule, n);
    if (!has_best || cut.parts_a_rank() != 1) continue;
    auto& g = get<stage_graph>(plan.steps[maker_of(plan, e->from[0])]);
    extent selections = 0;
    for (const ir::node_id id : g.nodes.ids())
      if (holds_alternative<ir::select_node>(g.nodes[id].op)) ++selections;
    if (selections != 1) continue;
    g.keep = e->first = first_best(e->rule, n, static_cast<double>(cut.parts));
    give_size(p, cut, *e);
    e->tells_bounds = tells_bounds(*e, tokens * cut.ranks);
    if (e->tells_bounds) g.merged = e->rule.keep;
  }
}

// Finds a placement, if there is one.
inline std::optional<placement> cheapest_placement(const placement_problem& p) {
  const bool is_one_pass = p.ends.size() == 1;
  if (is_one_pass) return placement_search(p, all).find();
  constexpr extent few = 512;
  auto found = placement_search(p, few).find();
  return found ? found : placement_search(p, 8 * few).find();
}

FMOE_INLINE stage_plan plan_of(const ir::graph& g, const ir::node_list& roots,
                               const std::vector<spread>& ends, const axis_cut& cut,
                               const std::vector<cut_parameter>& parameters, extent tokens,
                               extent element_bytes, const network_costs& costs,
                               bool lists_entries) {
  const ir::live_graph part = ir::live(g, roots);
  if (cut.parts == 1) return plan_of_whole(part.nodes, part.roots, ends);
  const planner::expanded_graph pairs = planner::expand(part.nodes, part.roots, {});
  const axis_list axes = axes_of_nodes(pairs.nodes, pairs.roots, parameters);
  for (extent k = 0; k < ends.size(); ++k)
    expects<value_error>(ends[k] != spread::tokens || !axes[pairs.roots[k]].is_sum,
                         sums_over_tokens);
  placement_problem problem{pairs.nodes,
                            pairs.roots,
                            ends,
                            axes,
                            static_cast<double>(cut.parts),
                            element_bytes,
                            costs,
                            sparse_values(pairs.nodes, pairs.roots, axes)};
  auto found = cheapest_placement(problem);
  placement_problem best = problem;
  for (const ir::node_id id : routers_of(problem))
    for (const spread at : {spread::tokens, spread::label}) {
      problem.router.emplace(problem.sparse, id, at);
      auto routed = cheapest_placement(problem);
      if (!routed || (found && routed->seconds >= found->seconds)) continue;
      found = std::move(routed);
      best.router = problem.router;
    }
  expects<value_error>(
      found.has_value(),
      "[shard] this label cannot be cut: an operation on weights needs the whole axis");
  stage_plan plan = stage_planner(best, *found, cut, parameters, tokens, lists_entries).take();
  keep_first_best(plan, best, cut, tokens);
  return plan;
}

}  // namespace fmoe::detail
