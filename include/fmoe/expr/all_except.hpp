// SPDX-License-Identifier: MIT
// An operand of einsum that is 0 at a few pairs of two axes and 1 at all others, for sums without
// deleted experts.
#pragma once

#include <span>

#include <fmoe/expr/expression.hpp>

namespace fmoe::detail {

struct pair_mask : expression_base {
  using scalar = float;  // any scalar will do: the rest of the expression decides
  static constexpr type_set types = 0;
  static constexpr extent rank = 2;

  pair_set left_out;
  extent rows, columns;

  ir::node_id lower(ir::graph& g) const { return g.all_except(left_out, rows, columns); }
};

}  // namespace fmoe::detail

namespace fmoe {

// [rows, columns]: 0 at the pairs, 1 elsewhere. Only the list is stored, and a sum over it costs as
// much as the rows or columns with a pair, not as all: einsum<"ti,tj,ij->tj"> computes the sum
// without the mask, and then once more, over the pairs that are kept, for each j that occurs in a
// pair. It can only be an operand of einsum, and other operands must have its labels, too. Pairs
// may repeat. Throws value_error for a pair outside rows x columns.
inline detail::pair_mask all_except(std::span<const index_pair> pairs, std::size_t rows,
                                    std::size_t columns) {
  auto sorted = std::make_shared<std::vector<index_pair>>(pairs.begin(), pairs.end());
  for (const auto& [i, j] : *sorted)
    detail::expects<value_error>(i < rows && j < columns, "[all_except] the pair (", i, ", ", j,
                                 ") is outside ", rows, " x ", columns);
  std::ranges::sort(*sorted);
  sorted->erase(std::unique(sorted->begin(), sorted->end()), sorted->end());
  return {{}, std::move(sorted), rows, columns};
}

}  // namespace fmoe
