// SPDX-License-Identifier: MIT
// The planner: the passes that every backend shares, in their order. A backend takes the lowered
// program and lays it out on its machine.
#pragma once

#include <fmoe/ir/live.hpp>
#include <fmoe/planner/compact.hpp>
#include <fmoe/planner/fuse.hpp>
#include <fmoe/planner/group.hpp>
#include <fmoe/planner/lower.hpp>
#include <fmoe/planner/match.hpp>
#include <fmoe/planner/reweigh.hpp>
#include <fmoe/planner/sample.hpp>
#include <fmoe/planner/skip.hpp>
#include <fmoe/planner/stages.hpp>

namespace fmoe::planner {

// The contractions of an expression, one operation each: what cost counts. Throws shape_error or
// value_error where an expression cannot be computed.
inline program contractions(const ir::graph& g, const ir::node_list& results,
                            const plan_options& options) {
  const ir::live_graph needed = ir::live(g, results);
  program p = lowering(expand(needed.nodes, needed.roots, options), options).take();
  if (!options.naive) {
    sample(p, options.on);
    if (options.on.compacts) compact(p, options.on);
    group(p);
    if (options.on.compacts) reweigh(p);
  }
  skip(p, options.on);
  match(p);
  arrange_stages(p);
  return p;
}

// The lowered program of a graph, which needs the graph no more. Throws as `contractions` does.
inline program lower(const ir::graph& g, const ir::node_list& results,
                     const plan_options& options) {
  program p = contractions(g, results, options);
  fuse(p);
  return p;
}

}  // namespace fmoe::planner
