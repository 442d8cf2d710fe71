// SPDX-License-Identifier: MIT
// An operand of einsum that is 0 at a few pairs of two axes and 1 at all others, for sums without
// deleted experts.
#pragma once

#include <span>

#include <fmoe/expr/operations.hpp>

namespace fmoe {

// [rows, columns]: 0 at the pairs, 1 elsewhere. Only the list is stored, and a sum over it costs as
// much as the rows or columns with a pair, not as all: einsum<"ti,tj,ij->tj"> computes the sum
// without the mask, and then once more, over the pairs that are kept, for each j that occurs in a
// pair. It can only be an operand of einsum, and other operands must have its labels, too. Pairs
// may repeat. Throws value_error for a pair outside rows x columns.
inline expr<float, 2, 0> all_except(std::span<const index_pair> pairs, std::size_t rows,
                                    std::size_t columns) {
  return {detail::typed_as(), dynamic::all_except(pairs, rows, columns)};
}

}  // namespace fmoe
