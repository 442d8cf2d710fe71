// SPDX-License-Identifier: MIT
// The plan of a graph in words, with its costs.
#pragma once

#include <iomanip>

#include <fmoe/base/text_stream.hpp>
#include <fmoe/base/time_text.hpp>
#include <fmoe/ir/dot.hpp>
#include <fmoe/planner/cost.hpp>
#include <fmoe/run/compile_graph-inl.hpp>
#include <fmoe/run/explain.hpp>

namespace fmoe::detail {

// Returns the bytes of a program's weights; leaves that are views of each other's elements count
// once.
inline extent weight_bytes(const planner::program& p) {
  std::vector<const void*> seen;
  extent n = 0;
  for (const planner::value& v : p.values) {
    if (!v.leaf || v.per_token()) continue;
    const ir::leaf_node& l = p.leaves[*v.leaf];
    if (l.data == nullptr || std::ranges::count(seen, l.data.get()) != 0) continue;
    seen.push_back(l.data.get());
    n += l.outline().bytes();
  }
  return n;
}

template <class T, class Level>
explanation explain_graph(const ir::graph& g, const ir::node_list& results, extent tokens,
                          const compile_options& options, const std::optional<in_place>& arrays) {
  const auto on = backend_of<T, Level>(options);
  const planner::plan_options how = plan_options_of(options, *on, dtype_of<T>, arrays);
  planner::program p = planner::lower(g, results, how);
  expects_rounding(p, how);
  if (p.tokens && tokens != all) p.token_count = tokens;
  const backend::description plan =
      on->explain({p, dtype_of<T>, p.token_count, options.callers, options.threads, how});
  const cost_figures cost =
      planner::cost_of(planner::contractions(g, results, how), p.token_count, sizeof(T));
  text_stream text;
  text << on->name() << ", " << how.on.name << '\n';
  if (!plan.layout.empty()) text << plan.layout << "; ";
  text << std::fixed << std::setprecision(0) << cost.multiply_adds << " multiply-adds a token, "
       << cost.parameters << " parameters, " << cost.bytes << " bytes for " << p.token_count
       << " tokens\n";
  const memory_figures memory{weight_bytes(p), plan.packed, plan.call};
  text << "memory: " << memory.weights << " bytes of weights, " << memory.packed << " packed, "
       << memory.call << " a call\n";
  if (plan.seconds > 0)
    text << "time: about " << time_text(plan.seconds) << " for " << p.token_count << " tokens"
         << (!plan.has_threads  ? ""
             : how.threads == 1 ? " on 1 thread"
                                : " on " + std::to_string(how.threads) + " threads")
         << '\n';
  return {text.str() + plan.steps,
          plan.dot,
          ir::graph_printer(g, results[0]).dot(),
          plan.seconds,
          memory,
          plan.tells_bounds};
}

}  // namespace fmoe::detail
