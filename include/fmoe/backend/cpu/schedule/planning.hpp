// SPDX-License-Identifier: MIT
// The CPU's passes: a lowered program becomes a plan of steps.
#pragma once

#include <fmoe/backend/cpu/schedule/choose.hpp>
#include <fmoe/planner/cost.hpp>
#include <fmoe/planner/tuned_shapes.hpp>

namespace fmoe::cpu {

// Throws value_error for a value between two steps that no memory holds, with what the plan would
// cost. Below this limit no length of the plan overflows.
inline void expects_memory(const planner::program& p, const planner::plan_options& how) {
  constexpr extent most = extent{1} << 40;
  for (const planner::value& v : p.values) {
    const bool is_dense = !v.leaf && !v.selection;
    if (!is_dense || v.size() <= most) continue;
    const double work = planner::cost_of(p, p.token_count, how.element_bytes).multiply_adds;
    fail<value_error>("[compile] the cheapest plan makes ", v.size(), " numbers",
                      v.per_token() ? " of each token" : "", " between two steps, in ", work,
                      " multiply-adds a token: name fewer labels at a time, or smaller ones");
  }
}

// Returns a plan for calls of up to `tokens` rows; if that is `all`, of as many as the program's
// inputs have.
inline step_plan make_plan(planner::program p, extent tokens, const planner::plan_options& how) {
  if (p.tokens && tokens != all) p.token_count = tokens;
  expects_memory(p, how);
  shape_search search(p, how);
  if (!how.chooses_shape) return search.with(how.shape);
  if (const auto shape = planner::tuned_shape(p, how)) return search.with(*shape);
  return std::move(search.all().front().made);
}

}  // namespace fmoe::cpu
