// SPDX-License-Identifier: MIT
// A graph becomes an executable. This header is the wall behind which planner, backends and kernels
// are compiled: here is the declaration, compile_graph-inl.hpp has the definition.
#pragma once

#include <memory>

#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::detail {

struct compiled_graph {
  std::unique_ptr<const executable> program;
  bool tokens;  // does the first axis of the results count tokens?
};

// In the arithmetic of T, for calls of up to `tokens` rows. Level is the instruction set of the
// translation unit that asks, so that each runs its own kernels. Throws shape_error and value_error
// where an expression cannot be computed.
template <class T, class Level>
compiled_graph compile_graph(const ir::graph& g, const ir::node_list& results, extent tokens,
                             const compile_options& options);

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)  // else one translation unit includes fmoe/src.hpp
#include <fmoe/run/compile_graph-inl.hpp>
#endif
