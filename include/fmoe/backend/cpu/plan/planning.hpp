// SPDX-License-Identifier: MIT
// The CPU's passes: a lowered program becomes a plan of steps.
#pragma once

#include <fmoe/backend/cpu/plan/emit.hpp>
#include <fmoe/backend/cpu/plan/screen.hpp>

namespace fmoe::cpu {

// Returns a plan for calls of up to `tokens` rows; if that is `all`, of as many as the program's
// inputs have.
inline plan make_plan(planner::program p, extent tokens, const planner::plan_options& how) {
  if (p.tokens && tokens != all) p.token_count = tokens;
  screen(p, how, p.token_count);
  gather_loops(p, how);
  return emitter(p, choose_tile(p, how, p.token_count), how).take();
}

}  // namespace fmoe::cpu
