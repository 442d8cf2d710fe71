// SPDX-License-Identifier: MIT
// Joins expressions along an axis, and appends the 1 that turns the last row of a weight into a
// bias.
#pragma once

#include <tuple>

#include <fmoe/expr/expression.hpp>

namespace fmoe {

template <extent Axis, expression... Es>
struct concatenation {
  using scalar = arithmetic_t<typename Es::scalar...>;
  static constexpr extent rank = std::tuple_element_t<0, std::tuple<Es...>>::rank;
  static_assert(((Es::rank == rank) && ...), "concat: all operands have the same rank");
  static_assert(Axis < rank, "concat: the axis is below the operands' rank");

  std::tuple<Es...> parts;

  ir::node_id lower(ir::graph& g) const {
    return g.concat(
        std::apply([&](const auto&... e) { return std::vector<ir::node_id>{e.lower(g)...}; },
                   parts),
        Axis);
  }
};

// concat<1>(a, b) has the columns of a, then those of b. When it is lowered, throws shape_error if
// another extent differs.
template <extent Axis, operand... Es>
auto concat(const Es&... es) {
  return concatenation<Axis, expression_t<Es>...>{{as_expression(es)...}};
}

template <expression E>
struct with_one {
  using scalar = typename E::scalar;
  static constexpr extent rank = E::rank;

  E arg;

  ir::node_id lower(ir::graph& g) const { return g.append_one(arg.lower(g)); }
};

// Returns e with a 1 after the last entry of each row. A product along that axis adds the last
// slice of its weight as a bias; nothing is copied.
template <operand E>
auto append_one(const E& e) {
  static_assert(expression_t<E>::rank >= 1, "append_one: the operand has a last axis");
  return with_one<expression_t<E>>{as_expression(e)};
}

}  // namespace fmoe
