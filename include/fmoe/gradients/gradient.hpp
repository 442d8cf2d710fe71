// SPDX-License-Identifier: MIT
// The gradient of an expression is an expression.
#pragma once

#include <fmoe/expr/expression.hpp>
#include <fmoe/gradients/differentiate.hpp>

namespace fmoe::detail {

template <expression Y, expression P, expression D>
struct gradient_of : composed_of<Y, D> {
  static constexpr extent rank = P::rank;

  Y y;
  P parameter;
  D dy;

  ir::node_id lower(ir::graph& g) const {
    const ir::node_id root = y.lower(g), of = parameter.lower(g), seed = dy.lower(g);
    return gradient_of_part(g, root, seed, of);
  }
};

}  // namespace fmoe::detail

namespace fmoe {

// The gradient of sum(y dy) with respect to a parameter, a tensor or a part of y: an expression of
// its shape, which may be a result beside y. dy has the shape of y. Selections, bounds and running
// statistics are held constant. When it is lowered, throws shape_error if dy has another shape, and
// value_error where a function has no derivative, or if y does not depend on the parameter.
//
//   const tensor<float, 2> dy({x.shape()[0], w.shape()[1]});
//   const auto y = gelu(einsum<"ti,io->to">(x, w));
//   const auto [out, dw] = evaluate(std::tuple(y, gradient(y, w, dy)));
template <operand Y, operand P, operand D>
auto gradient(const Y& y, const P& parameter, const D& dy) {
  static_assert(expression_t<Y>::rank == expression_t<D>::rank,
                "gradient: dy has as many axes as y");
  return detail::gradient_of<expression_t<Y>, expression_t<P>, expression_t<D>>{
      {}, as_expression(y), as_expression(parameter), as_expression(dy)};
}
template <operand Y, operand P>
detail::refused gradient(const Y&, const P&) {
  static_assert(detail::never<Y>,
                "gradient: dy, the weight of each number of y, comes third, as in "
                "fmoe::gradient(y, w, dy)");
  return {};
}

}  // namespace fmoe
