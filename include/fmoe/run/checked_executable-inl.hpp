// SPDX-License-Identifier: MIT
// A compiled graph behind the check of a call.
#pragma once

#include <string>

#include <fmoe/ir/graph.hpp>
#include <fmoe/run/checked_executable.hpp>

namespace fmoe::detail {

FMOE_INLINE checked_executable::checked_executable(const ir::graph& g, compiled_graph compiled,
                                                   extent arguments, dtype type, extent tokens)
    : rows_(arguments),
      arguments_(arguments),
      tokens_(tokens),
      type_(type),
      compiled_(std::move(compiled)) {
  extent used = 0;
  for (const ir::node_id id : g.ids()) {
    const auto* l = get_if<ir::leaf_node>(&g[id].op);
    if (l == nullptr || l->argument < 0) continue;
    const auto shape = g.shape(id);
    rows_[static_cast<extent>(l->argument)].assign(shape.begin() + 1, shape.end());
    ++used;
  }
  expects<value_error>(used == arguments, "[compile] the layer uses ", used, " of its ", arguments,
                       " arguments");
  for (const compiled_result& r : compiled_.results)
    rows_.emplace_back(r.shape.begin(), r.shape.end());
  using enum expected_array::role;
  for (extent i = 0; i < rows_.size(); ++i)
    expected_.push_back({.row = rows_[i],
                         .type = type,
                         .is = i < arguments ? widened_input : output,
                         .per_token = has_tokens(i)});
}

FMOE_INLINE checked_executable::checked_executable(checked_executable&&) noexcept = default;
FMOE_INLINE checked_executable& checked_executable::operator=(checked_executable&&) noexcept =
    default;
FMOE_INLINE checked_executable::~checked_executable() = default;

FMOE_INLINE void checked_executable::call(std::span<bound_array> arrays,
                                          const std::optional<stream_handle>& stream) const {
  expects_program(compiled_);
  const auto name = [&](extent i) -> std::string {
    if (i >= arguments_ && results() == 1) return "the output";
    return i < arguments_ ? "input " + std::to_string(i)
                          : "output " + std::to_string(i - arguments_);
  };
  const extent tokens = call_check{
      .call = "[forward]",
      .computed = "the layer",
      .name = name,
      .arrays = expected_,
      .most_tokens = tokens_}([&](extent i) -> const array_view& { return arrays[i].array; });
  for (extent i = 0; i < arrays.size(); ++i) arrays[i].row_rank = rows_[i].size();
  expects<value_error>(!is_stale(compiled_),
                       "[forward] a weight may have been written since the layer was compiled: "
                       "call refresh() before the next call");
  compiled_.program->run(
      {arrays.first(arguments_), arrays.subspan(arguments_), tokens, stream, compiled_.keep});
}

}  // namespace fmoe::detail
