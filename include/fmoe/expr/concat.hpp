// SPDX-License-Identifier: MIT
// Expressions one after the other along an axis, and the 1 that makes a weight's last row a bias.
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

// concat<1>(a, b) has a's columns, then b's. Throws shape_error, when lowered, if another extent
// differs.
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

// e with a 1 after the last entry of each row. A product along that axis adds its weight's last
// slice as a bias; nothing is copied.
template <operand E>
auto append_one(const E& e) {
  static_assert(expression_t<E>::rank >= 1, "append_one: the operand has a last axis");
  return with_one<expression_t<E>>{as_expression(e)};
}

}  // namespace fmoe
