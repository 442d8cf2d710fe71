// SPDX-License-Identifier: MIT
// The cost of a graph: that of its contractions in the planner's order, and that of the naive form.
#pragma once

#include <fmoe/planner/cost.hpp>
#include <fmoe/planner/planner.hpp>
#include <fmoe/run/compile_graph-inl.hpp>
#include <fmoe/run/cost.hpp>

namespace fmoe::detail {

template <class T, class Level>
cost_figures factorized_cost(const ir::graph& g, const ir::node_list& results, extent tokens,
                             const compile_options& options) {
  const planner::plan_options how =
      plan_options_of(options, *backend_of<T, Level>(options), dtype_of<T>);
  const planner::program p = planner::contractions(g, results, how);
  return planner::cost_of(p, p.tokens && tokens != all ? tokens : p.token_count, sizeof(T));
}

template <class Level>
cost_report cost_of_result(const lowered_graph& e, extent element_bytes) {
  const auto figures = [&](bool naive) {
    planner::plan_options how;
    how.naive = naive;
    const planner::program p = planner::contractions(e.nodes(), e.roots(), how);
    return planner::cost_of(p, p.token_count, element_bytes);
  };
  return {figures(false), figures(true), planner::naive_closed_form(e.nodes())};
}

}  // namespace fmoe::detail
