// SPDX-License-Identifier: MIT
// A graph becomes an executable. This header is the wall behind which planner, backends and kernels
// are compiled: here is the declaration, compile_graph-inl.hpp has the definition.
#pragma once

#include <memory>
#include <optional>

#include <fmoe/arrays/storage.hpp>
#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/base/separate.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::ir {

class graph;
struct node_list;

}  // namespace fmoe::ir

namespace fmoe::detail {

// How often an executable runs: many times, or once, before anybody writes.
enum class calls : unsigned char { many, one };

struct compiled_result {
  vector<extent> shape;  // without the token axis
  bool per_token;        // false for a sum over the tokens of a call, say
};

// The elements of a leaf, and the version of them that an executable has read.
struct read_weight {
  std::shared_ptr<storage> elements;  // null for an argument
  std::uint64_t version;
};
inline constexpr std::uint64_t never_read = ~std::uint64_t{0};

struct compile_job;  // the program and the options that a backend compiles

struct compiled_graph {
  std::shared_ptr<compile_job> job;
  std::unique_ptr<executable> program;
  extent tokens;  // of the largest call; 1 if no axis counts tokens
  vector<compiled_result> results;
  vector<read_weight> weights;  // of each leaf of the program
  extent most_kept = 0;         // the entries that each top-k has room for; 0 if there is none
  extent keep = all;            // and those that it keeps
};

// An executable reads weights where they are written, and calls bind plain arrays for results
// without tokens.
struct in_place {
  vector<vector<extent>> tables{};  // planner::plan_options::tables
};

// Throws value_error if the graph was moved elsewhere.
inline void expects_program(const compiled_graph& g) {
  expects<value_error>(g.program != nullptr,
                       "[forward] the compiled layer was moved: use the one that it was moved to");
}

// True if a weight may have been written since the executable read it.
inline bool is_stale(const compiled_graph& g) {
  for (const read_weight& w : g.weights)
    if (w.elements != nullptr && w.elements->version() != w.version) return true;
  return false;
}

// Says how many entries each top-k keeps from now on. Throws value_error unless there is one, and
// it has room for them.
inline void keep(compiled_graph& g, extent entries) {
  if (entries != all) {
    expects<value_error>(g.most_kept != 0, "[keep] the layer has no top_k that leaves out entries");
    expects<value_error>(entries != 0 && entries <= g.most_kept, "[keep] ", entries,
                         " entries: the layer is compiled for 1 to ", g.most_kept);
  }
  g.keep = entries;
}

// Reads the weights that may have been written again: in place if the backend can, else it makes
// the executable anew.
void refresh(compiled_graph& g);

// Compiles in the arithmetic of T, for calls of up to `tokens` rows; if that is `all`, of as many
// as the graph's inputs have. Level is the instruction set of the translation unit that calls this,
// so that each runs its own kernels. Throws shape_error and value_error if an expression cannot be
// computed. An executable reads copies of the weights, so that calls go on with the old elements
// when one is written, unless it is told to use arrays in place. One that runs once reads those
// that others may write at any time where they lie.
template <class T, class Level>
compiled_graph compile_graph(const ir::graph& g, const ir::node_list& results, extent tokens,
                             const compile_options& options,
                             const std::optional<in_place>& arrays = {},
                             calls expected = calls::many);

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)  // otherwise one translation unit includes fmoe/src.hpp
#include <fmoe/run/compile_graph-inl.hpp>
#endif
