// SPDX-License-Identifier: MIT
// The planner: the passes that every backend shares. A backend takes the lowered program and lays
// it out on its machine.
#pragma once

#include <fmoe/base/separate.hpp>
#include <fmoe/ir/graph.hpp>
#include <fmoe/planner/options.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe::planner {

// The contractions of an expression, one operation each: what cost counts. Throws shape_error or
// value_error where an expression cannot be computed.
program contractions(const ir::graph& g, const ir::node_list& results, const plan_options& options);

// The lowered program of a graph, which needs the graph no more. Throws as `contractions` does.
program lower(const ir::graph& g, const ir::node_list& results, const plan_options& options);

}  // namespace fmoe::planner

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/planner/planner-inl.hpp>
#endif
