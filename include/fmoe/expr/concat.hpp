// SPDX-License-Identifier: MIT
// Joins expressions along an axis, and appends the 1 that turns the last row of a weight into a
// bias.
#pragma once

#include <fmoe/expr/expression_list.hpp>

namespace fmoe::detail {

template <extent Axis, expression E, expression... Es>
struct concatenation : composed_of<E, Es...> {
  static constexpr extent rank = E::rank;
  static_assert(((Es::rank == rank) && ...), "concat: all operands have the same rank");
  static_assert(Axis < rank, "concat: the axis is below the operands' rank");

  expression_list<E, Es...> parts;

  ir::node_id lower(ir::graph& g) const { return g.concat(parts.lower(g), Axis); }
};

}  // namespace fmoe::detail

namespace fmoe {

// concat<1>(a, b) has the columns of a, then those of b. When it is lowered, throws shape_error if
// another extent differs.
template <std::size_t Axis, operand... Es>
auto concat(const Es&... es) {
  return detail::concatenation<Axis, expression_t<Es>...>{{}, {{as_expression(es)}...}};
}

}  // namespace fmoe

namespace fmoe::detail {

template <expression E>
struct with_one : composed_of<E> {
  static constexpr extent rank = E::rank;

  E arg;

  ir::node_id lower(ir::graph& g) const { return g.append_one(arg.lower(g)); }
};

}  // namespace fmoe::detail

namespace fmoe {

// Returns e with a 1 after the last entry of each row. A product along that axis adds the last
// slice of its weight as a bias; nothing is copied.
template <operand E>
auto append_one(const E& e) {
  static_assert(expression_t<E>::rank >= 1, "append_one: the operand has a last axis");
  return detail::with_one<expression_t<E>>{{}, as_expression(e)};
}

}  // namespace fmoe
