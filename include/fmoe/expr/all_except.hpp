// SPDX-License-Identifier: MIT
// An operand of einsum that is 1 at all pairs of two axes but a few, which are 0: sums without
// deleted experts.
#pragma once

#include <span>

#include <fmoe/expr/expression.hpp>

namespace fmoe {

struct pair_mask {
  using scalar = float;  // whatever the rest of the expression is computed in
  static constexpr extent rank = 2;

  pair_set left_out;
  extent rows, columns;

  ir::node_id lower(ir::graph& g) const { return g.all_except(left_out, rows, columns); }
};

// [rows, columns]: 0 at the pairs, 1 elsewhere. Stored as the list, and a sum over it costs what
// the rows or columns with a pair cost, not all: einsum<"ti,tj,ij->tj"> is the sum without the
// mask, and again, over what is kept, for each j in a pair. An operand of einsum only, whose labels
// other operands have too. Pairs may repeat; one outside throws value_error.
inline pair_mask all_except(std::span<const index_pair> pairs, extent rows, extent columns) {
  auto sorted = std::make_shared<std::vector<index_pair>>(pairs.begin(), pairs.end());
  for (const auto& [i, j] : *sorted)
    expects<value_error>(i < rows && j < columns, "[all_except] the pair (", i, ", ", j,
                         ") is outside ", rows, " x ", columns);
  std::ranges::sort(*sorted);
  sorted->erase(std::unique(sorted->begin(), sorted->end()), sorted->end());
  return {std::move(sorted), rows, columns};
}

}  // namespace fmoe
