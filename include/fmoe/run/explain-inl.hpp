// SPDX-License-Identifier: MIT
// The plan of a graph in words, with its costs.
#pragma once

#include <iomanip>
#include <sstream>

#include <fmoe/ir/dot.hpp>
#include <fmoe/planner/cost.hpp>
#include <fmoe/run/compile_graph-inl.hpp>
#include <fmoe/run/explain.hpp>

namespace fmoe::detail {

template <class T, class Level>
explanation explain_graph(const ir::graph& g, ir::node_id root, const compile_options& options) {
  const auto on = backend_of<T, Level>(options);
  const planner::plan_options how = plan_options_of(options, *on, dtype_of<T>);
  const planner::program p = planner::lower(g, root, how);
  const backend::description plan =
      on->explain({p, dtype_of<T>, p.token_count, options.callers, how});
  const cost_figures cost =
      planner::cost_of(planner::contractions(g, root, how), p.token_count, sizeof(T));
  std::ostringstream text;
  text << on->name() << ", " << how.on.name << '\n';
  if (!plan.layout.empty()) text << plan.layout << "; ";
  text << std::fixed << std::setprecision(0) << cost.multiply_adds << " multiply-adds a token, "
       << cost.parameters << " parameters, " << cost.bytes << " bytes for " << p.token_count
       << " tokens\n";
  return {text.str() + plan.steps, plan.dot, ir::graph_printer(g, root).dot()};
}

}  // namespace fmoe::detail
