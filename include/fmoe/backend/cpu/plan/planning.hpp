// SPDX-License-Identifier: MIT
// The CPU's passes: a lowered program becomes a plan of steps.
#pragma once

#include <fmoe/backend/cpu/plan/emit.hpp>
#include <fmoe/backend/cpu/plan/screen.hpp>

namespace fmoe::cpu {

// A plan for calls of up to `tokens` rows.
inline plan make_plan(planner::program p, extent tokens, const planner::plan_options& how) {
  const extent rows = p.tokens ? tokens : 1;
  screen(p, how, rows);
  gather_loops(p, how);
  return emitter(p, choose_tile(p, how, rows), how).take();
}

}  // namespace fmoe::cpu
