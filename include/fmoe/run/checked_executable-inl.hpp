// SPDX-License-Identifier: MIT
// The checks of a call.
#pragma once

#include <string>

#include <fmoe/arrays/overlap.hpp>
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
  for (extent i = rows_.size(); i-- > arguments;)
    if (has_tokens(i)) counted_ = i;
}

// What the sentences about a call name an array.
struct numbered_array {
  extent i, arguments, results;
  operator std::string() const {
    if (i >= arguments && results == 1) return "the output";
    std::string text = i < arguments ? "input " : "output ";
    return text += std::to_string(i < arguments ? i : i - arguments);
  }
};

FMOE_INLINE void checked_executable::call(std::span<bound_array> arrays,
                                          const std::optional<stream_handle>& stream) const {
  expects_program(compiled_);
  const auto what = [&](extent i) { return numbered_array{i, arguments_, results()}; };
  const extent tokens = tokens_in(counted_, arrays[counted_].array);
  for (extent i = 0; i < arrays.size(); ++i) {
    const array_view& v = arrays[i].array;
    const extent row_rank = rows_[i].size();
    expects<shape_error>(v.rank >= row_rank, "[forward] ", what(i), " has ", v.rank,
                         " axes and a row alone has ", row_rank);
    for (extent a = 0; a < row_rank; ++a)
      expects<shape_error>(v.shape[v.rank - row_rank + a] == rows_[i][a], "[forward] axis ", a,
                           " of the rows of ", what(i), " is ", v.shape[v.rank - row_rank + a],
                           " and the layer's is ", rows_[i][a]);
    if (has_tokens(i))
      expects<shape_error>(v.tokens(row_rank) == tokens, "[forward] 't' is ", v.tokens(row_rank),
                           " in ", what(i), " and ", tokens, " in ", what(counted_));
    else
      expects<shape_error>(v.rank == row_rank, "[forward] ", what(i), " has ", v.rank,
                           " axes and the layer's result, which has no tokens, has ", row_rank);
    expects<value_error>(i < arguments_ ? size_of(v.type) <= size_of(type_) : v.type == type_,
                         "[forward] ", what(i), " is of ", name_of(v.type),
                         " and the layer computes in ", name_of(type_), ": convert it first");
    arrays[i].row_rank = row_rank;
  }
  for (extent y = arguments_; y < arrays.size(); ++y) {
    expects<value_error>(!arrays[y].array.repeats(), "[forward] an axis of ", what(y),
                         " has stride 0");
    for (extent i = 0; i < y; ++i)
      expects<value_error>(!overlap(arrays[i].array, arrays[y].array), "[forward] ", what(y),
                           " overlaps ", what(i));
  }
  expects<shape_error>(tokens <= tokens_, "[forward] 't' is ", tokens,
                       " and the layer is compiled for at most ", tokens_, ": say more to compile");
  expects<value_error>(!is_stale(compiled_),
                       "[forward] a weight may have been written since the layer was compiled: "
                       "call refresh() before the next call");
  compiled_.program->run(
      {arrays.first(arguments_), arrays.subspan(arguments_), tokens, stream, compiled_.keep});
}

}  // namespace fmoe::detail
