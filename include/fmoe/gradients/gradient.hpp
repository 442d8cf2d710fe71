// SPDX-License-Identifier: MIT
// The gradient of an expression is an expression.
#pragma once

#include <fmoe/expr/expression.hpp>
#include <fmoe/gradients/differentiate.hpp>

namespace fmoe::dynamic {

// The gradient of sum(y dy) with respect to a part of y: see fmoe::gradient. Throws shape_error if
// dy has another number of axes than y.
expression gradient(const expression& y, const expression& of, const expression& dy);
// The same of one number, with dy = 1.
expression gradient(const expression& y, const expression& of);

// See fmoe::stop_gradient.
expression stop_gradient(const expression& x);

}  // namespace fmoe::dynamic

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
  return detail::typed<expression_t<P>::rank>(
      [](const auto&... es) { return dynamic::gradient(es...); }, y, parameter, dy);
}
// The gradient of one number, such as a loss of all tokens.
template <operand Y, operand P>
auto gradient(const Y& y, const P& parameter) {
  static_assert(expression_t<Y>::rank == 0,
                "gradient: dy, the weight of each number of y, comes third, as in "
                "fmoe::gradient(y, w, dy)");
  return detail::typed<expression_t<P>::rank>(
      [](const auto&... es) { return dynamic::gradient(es...); }, y, parameter);
}

// x, which gradients hold constant; it costs nothing.
template <operand X>
auto stop_gradient(const X& x) {
  return detail::typed<expression_t<X>::rank>(dynamic::stop_gradient, x);
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/gradients/gradient-inl.hpp>
#endif
