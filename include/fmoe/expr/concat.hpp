// SPDX-License-Identifier: MIT
// Joins expressions along an axis, and appends the 1 that turns the last row of a weight into a
// bias.
#pragma once

#include <fmoe/expr/operations.hpp>

namespace fmoe {

// concat<1>(a, b) has the columns of a, then those of b. When it is lowered, throws shape_error if
// another extent differs.
template <std::size_t Axis, operand E, operand... Es>
auto concat(const E& e, const Es&... es) {
  constexpr std::size_t rank = expression_t<E>::rank;
  static_assert(((expression_t<Es>::rank == rank) && ...),
                "concat: all operands have the same rank");
  static_assert(Axis < rank, "concat: the axis is below the operands' rank");
  return detail::typed<rank>(
      [](const auto&... parts) { return detail::concatenation({&parts...}, Axis); }, e, es...);
}

// Returns e with a 1 after the last entry of each row. A product along that axis adds the last
// slice of its weight as a bias; nothing is copied.
template <operand E>
auto append_one(const E& e) {
  static_assert(expression_t<E>::rank >= 1, "append_one: the operand has a last axis");
  return detail::typed<expression_t<E>::rank>(dynamic::append_one, e);
}

}  // namespace fmoe
