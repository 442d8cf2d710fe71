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
  bool tokens;  // true if the first axis of the results counts tokens
};

// Compiles in the arithmetic of T, for calls of up to `tokens` rows. Level is the instruction set
// of the translation unit that calls this, so that each runs its own kernels. Throws shape_error
// and value_error if an expression cannot be computed.
template <class T, class Level>
compiled_graph compile_graph(const ir::graph& g, const ir::node_list& results, extent tokens,
                             const compile_options& options);

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)  // otherwise one translation unit includes fmoe/src.hpp
#include <fmoe/run/compile_graph-inl.hpp>
#endif
