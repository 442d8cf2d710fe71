// SPDX-License-Identifier: MIT
// The passes of the planner, in their order.
#pragma once

#include <fmoe/ir/live.hpp>
#include <fmoe/planner/compact.hpp>
#include <fmoe/planner/fuse.hpp>
#include <fmoe/planner/group.hpp>
#include <fmoe/planner/lower.hpp>
#include <fmoe/planner/match.hpp>
#include <fmoe/planner/planner.hpp>
#include <fmoe/planner/reweigh.hpp>
#include <fmoe/planner/sample.hpp>
#include <fmoe/planner/skip.hpp>
#include <fmoe/planner/stages.hpp>

namespace fmoe::planner {

FMOE_INLINE program contractions(const ir::graph& g, const ir::node_list& results,
                                 const plan_options& options) {
  const ir::live_graph needed = ir::live(g, results);
  program p = lowering(expand(needed.nodes, needed.roots, options), options).take();
  if (!options.naive) {
    sample(p, options.on, options.kernels);
    if (options.kernels.compacts) compact(p, options.on);
    group(p);
    if (options.kernels.compacts) reweigh(p);
  }
  skip(p, options.on, options.kernels);
  match(p);
  arrange_stages(p);
  return p;
}

FMOE_INLINE program lower(const ir::graph& g, const ir::node_list& results,
                          const plan_options& options) {
  program p = contractions(g, results, options);
  fuse(p);
  return p;
}

}  // namespace fmoe::planner
