// SPDX-License-Identifier: MIT
// The planner: every pass in its order.
#pragma once

#include <fmoe/plan/emit.hpp>
#include <fmoe/plan/fuse.hpp>
#include <fmoe/plan/group.hpp>
#include <fmoe/plan/lower.hpp>
#include <fmoe/plan/match.hpp>
#include <fmoe/plan/sample.hpp>
#include <fmoe/plan/screen.hpp>
#include <fmoe/plan/skip.hpp>

namespace fmoe {

// The operations before they are laid out on a machine; what cost counts.
inline program make_program(const graph& g, const node_list& results, const plan_options& options) {
  program p = lowering(g, results, options).take();
  if (!options.naive) {
    sample(p);
    group(p);
  }
  skip(p);
  match(p);
  return p;
}

// A plan for up to `tokens` rows. Throws shape_error or value_error where an expression cannot be computed.
inline plan make_plan(const graph& g, const node_list& results, extent tokens, const plan_options& options) {
  program p = make_program(g, results, options);
  fuse(p);
  screen(p, options, p.tokens ? tokens : 1);
  gather_loops(p, options);
  return emitter(p, g, choose_tile(p, options, p.tokens ? tokens : 1), options).take();
}

}  // namespace fmoe
