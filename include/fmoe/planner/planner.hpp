// SPDX-License-Identifier: MIT
// The planner: every pass in its order.
#pragma once

#include <fmoe/backend/cpu/plan/emit.hpp>
#include <fmoe/backend/cpu/plan/screen.hpp>
#include <fmoe/ir/live.hpp>
#include <fmoe/planner/fuse.hpp>
#include <fmoe/planner/group.hpp>
#include <fmoe/planner/lower.hpp>
#include <fmoe/planner/match.hpp>
#include <fmoe/planner/sample.hpp>
#include <fmoe/planner/skip.hpp>
#include <fmoe/planner/stages.hpp>

namespace fmoe::planner {

// The operations before they are laid out on a machine; what cost counts.
inline program make_program(const ir::graph& g, const ir::node_list& results,
                            const plan_options& options) {
  const ir::live_graph needed = ir::live(g, results);
  program p = lowering(needed.nodes, needed.roots, options).take();
  for (value& v : p.values)
    if (v.leaf >= 0) v.leaf = static_cast<int>(needed.origin[static_cast<extent>(v.leaf)]);
  if (!options.naive) {
    sample(p);
    group(p);
  }
  skip(p);
  match(p);
  arrange_stages(p);
  return p;
}

// A plan for up to `tokens` rows; `unknown`: for as many as the graph's inputs have. Throws
// shape_error or value_error where an expression cannot be computed.
inline cpu::plan make_plan(const ir::graph& g, const ir::node_list& results, extent tokens,
                           const plan_options& options) {
  program p = make_program(g, results, options);
  if (p.tokens && tokens != unknown) p.token_count = tokens;
  fuse(p);
  cpu::screen(p, options, p.token_count);
  cpu::gather_loops(p, options);
  return cpu::emitter(p, g, cpu::choose_tile(p, options, p.token_count), options).take();
}

}  // namespace fmoe::planner
