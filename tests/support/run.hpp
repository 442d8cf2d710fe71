// SPDX-License-Identifier: MIT
// Runs plans of graphs straight on the executor, row ranges as asked, in memory that shows what was
// never written. run.cpp defines the members, so that a test compiles without the kernels.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include <fmoe/backend/backend.hpp>
#include <fmoe/ir/graph.hpp>
#include <fmoe/plan/plan.hpp>
#include <fmoe/planner/options.hpp>

#include "names.hpp"
#include "same_bits.hpp"

namespace fmoe::test {

// Computes rows of the result of a plan of `tokens` rows in tiles of `split` rows (at most the
// plan's tile); `all` tokens are as many as the inputs have. Arena, the call's memory and the
// result hold NaN before, and a guard behind the arena and the call's memory is checked. A plan of
// several stages is run whole. T is float or double.
template <class T>
class runner {
 public:
  // On this CPU, with the limits of `how`.
  runner(const ir::graph& g, ir::node_id root, extent tokens, const planner::plan_options& how);
  ~runner();

  const plan::step_plan& steps() const;

  // Has the plan stages that run once for the whole call?
  bool has_stages() const { return steps().stages.size() > 1 || steps().stages[0].per_call; }

  std::vector<T> rows(extent first, extent count, extent split) const;

  // Returns all rows, in tiles of the plan's size, or the whole result of an expression without
  // tokens.
  std::vector<T> all() const { return all(steps().token_count); }
  std::vector<T> all(extent tokens) const {
    return steps().tokens ? rows(0, tokens, steps().tile) : rows(0, 1, 1);
  }

 private:
  struct bound_plan;

  std::unique_ptr<const bound_plan> run_;
};

// Returns the result of a graph for as many rows as its inputs have. T is float or double.
template <class T>
std::vector<T> computed(const ir::graph& g, ir::node_id root, const compile_options& options);

// The same in double, as the reference backend computes it.
std::vector<double> by_reference(const ir::graph& g, ir::node_id root);

}  // namespace fmoe::test
