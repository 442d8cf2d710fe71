// SPDX-License-Identifier: MIT
// The plan of one rank: graphs that it computes alone, on the rows of all tokens or on its own, and
// exchanges between them.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmoe/base/separate.hpp>
#include <fmoe/distributed/best_of_part.hpp>
#include <fmoe/distributed/moved_bytes.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::detail {

// An array of a rank: a value as it lies there, or a part of it, or the numbers of which a merge
// makes it and the bounds of their rows, or the entries that a selection keeps of them; or a
// selection as lists [2, K] of its entries: their values and their places in the part.
struct array_key {
  enum class what : std::uint8_t { value, bounds, scores, kept_values, kept_indices, lists };

  ir::node_id id;
  spread how;
  extent part = 0;  // of this rank's parts
  what entries = what::value;
  auto operator<=>(const array_key&) const = default;
};

struct stage_array {
  array_key key;
  std::vector<extent> row;  // the shape without tokens
  token_set tokens;

  extent size() const { return element_count(row); }
};

enum class array_id : std::uint32_t {};

// What a rank computes alone.
struct stage_graph {
  ir::graph nodes;
  std::vector<ir::node_id> roots;
  std::vector<array_id> arguments, results;
  token_set tokens;
  extent keep = all;  // entries that its selection keeps, before a merge asks for all
  // Those that the merge keeps, if ranks may tell each other bounds of the scores first; or 0.
  extent merged = 0;
};

// How ranks bring a value from one spread to another.
struct stage_exchange {
  ir::node_id id;
  spread from_how, to_how;
  bool merges;  // of a selection `from` has values and indices of each part, or all its scores
  selection_rule rule{};
  extent first = 0;  // of a selection: the best of each rank that are merged at first, in all K or
                     // more
  std::optional<row_function> function{};  // that is merged, with its parameter
  double parameter = 0;
  std::optional<row_norm> norm{};
  std::vector<array_id> from, to;
  std::vector<array_id> lists{};  // of a selection, by part: beside `to`, or in place of it
  extent outer = 1, inner = 1;    // the numbers of a token before and behind the label's axis
  extent numbers = 0;             // of a token, in the whole value
  travel by = travel::rows;
  routing_load load{};        // of the selection that travels, or by which tokens do
  extent bounds = 0;          // of a token, in the last of `from`
  double merged_bytes = 0;    // that a merge moves for a token, but for what stays on its rank
  double merged_calls = 0;    // that a merge makes
  bool tells_bounds = false;  // of scores, before those that a rank gives are computed in full
  bool is_sum = false;        // over tokens: it moves once a call, and has no rows
};

struct stage_plan {
  list_by<array_id, stage_array> arrays;
  std::vector<variant<stage_graph, stage_exchange>> steps;
  std::vector<array_id> inputs;   // by the number of the argument
  std::vector<array_id> results;  // rows of this rank's tokens
  // Those that are sums over tokens, by part; of one that is 0 whatever the tokens, none.
  std::vector<std::vector<array_id>> sums;

  bool tells_bounds() const {
    return std::ranges::any_of(steps, [](const auto& step) {
      const auto* const e = get_if<stage_exchange>(&step);
      return e != nullptr && e->tells_bounds;
    });
  }

  // Graphs make no calls of ranks, so that one span of tokens can compute while another exchanges.
  void compute_without_calls() {
    for (auto& step : steps) {
      if (auto* const g = get_if<stage_graph>(&step)) g->merged = 0;
      else get<stage_exchange>(step).tells_bounds = false;
    }
  }
};

// Returns which step is the graph that makes an array.
inline extent maker_of(const stage_plan& plan, array_id made) {
  const auto makes = [&](const auto& step) {
    const auto* g = get_if<stage_graph>(&step);
    return g != nullptr && std::ranges::count(g->results, made) != 0;
  };
  return static_cast<extent>(std::ranges::find_if(plan.steps, makes) - plan.steps.begin());
}

// Returns the plan of one rank for calls of at most `tokens` rows of each rank, for the cheapest
// placement of all values. `ends` says where each result has to lie: first those that have rows, as
// tokens do; then sums over tokens, along the label or whole. The parameters that are cut are
// leaves of the graph. With `lists_entries` graphs take selections of few entries as lists of
// these. Throws value_error for a layer that cannot be cut so.
stage_plan plan_of(const ir::graph& g, const ir::node_list& roots, const std::vector<spread>& ends,
                   const axis_cut& cut, const std::vector<cut_parameter>& parameters, extent tokens,
                   extent element_bytes, const network_costs& costs = {},
                   bool lists_entries = true);

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/distributed/stage_plan-inl.hpp>
#endif
