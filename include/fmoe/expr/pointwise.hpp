// SPDX-License-Identifier: MIT
// Functions of one number, sums, differences and Hadamard products. Operands of different rank are
// aligned at their last axes, and the one with fewer axes is repeated along the leading axes of the
// other. Aligned extents must be equal: an extent of 1 is not stretched.
#pragma once

#include <fmoe/expr/expression.hpp>

namespace fmoe {

template <expression E>
struct mapped {
  using scalar = typename E::scalar;
  static constexpr extent rank = E::rank;

  pointwise fn;
  double parameter;
  E arg;

  ir::node_id lower(ir::graph& g) const { return g.map(fn, parameter, arg.lower(g)); }
};

// Applies fn to every element; `parameter` is the factor of scale, the summand of shift and the
// bound of threshold.
template <operand E>
auto apply(pointwise fn, const E& e, double parameter = 0) {
  return mapped<expression_t<E>>{fn, parameter, as_expression(e)};
}
template <uncalled E>
refused apply(pointwise, const E&, double = 0) {
  static_assert(
      never<E>,
      "relu and its like take a tensor or an expression; for a layer write relu(layer(x))");
  return {};
}

template <class E>
concept mappable = operand<E> || uncalled<E>;

// These functions apply to every element.
auto relu(const mappable auto& e) { return apply(pointwise::relu, e); }
auto gelu(const mappable auto& e) { return apply(pointwise::gelu, e); }
auto gelu_tanh(const mappable auto& e) { return apply(pointwise::gelu_tanh, e); }
auto silu(const mappable auto& e) { return apply(pointwise::silu, e); }
auto sigmoid(const mappable auto& e) { return apply(pointwise::sigmoid, e); }
auto squared_relu(const mappable auto& e) { return apply(pointwise::squared_relu, e); }
auto exp(const own_operand auto& e) { return apply(pointwise::exp, e); }
auto sqrt(const own_operand auto& e) { return apply(pointwise::sqrt, e); }
auto inverse_sqrt(const mappable auto& e) { return apply(pointwise::inverse_sqrt, e); }
auto operator-(const own_operand auto& e) { return apply(pointwise::negate, e); }
auto operator*(double factor, const own_operand auto& e) {
  return apply(pointwise::scale, e, factor);
}
auto operator*(const own_operand auto& e, double factor) { return factor * e; }
auto operator+(const own_operand auto& e, double summand) {
  return apply(pointwise::shift, e, summand);
}
auto operator+(double summand, const own_operand auto& e) { return e + summand; }
auto operator-(const own_operand auto& e, double subtrahend) { return e + -subtrahend; }
auto operator-(double minuend, const own_operand auto& e) { return -e + minuend; }

// Two operands that the graph joins with `Join`: graph::add or graph::multiply.
template <auto Join, expression A, expression B>
struct joined {
  using scalar = arithmetic_t<typename A::scalar, typename B::scalar>;
  static constexpr extent rank = A::rank > B::rank ? A::rank : B::rank;

  A left;
  B right;
  bool both = true;  // otherwise only the left one

  ir::node_id lower(ir::graph& g) const {
    const ir::node_id a = left.lower(g);
    return both ? (g.*Join)(a, right.lower(g)) : a;
  }
};

// These work element by element. They take forwarding references: xtensor's operators do so for any
// type, and these, which require more, are preferred.
template <operand A, operand B>
  requires own_operand<A> || own_operand<B>
auto operator+(A&& a, B&& b) {
  return joined<&ir::graph::add, expression_t<A>, expression_t<B>>{as_expression(a),
                                                                   as_expression(b)};
}
template <operand A, operand B>
  requires own_operand<A> || own_operand<B>
auto operator-(A&& a, B&& b) {
  return a + fmoe::apply(pointwise::negate, b);  // not std::apply
}
template <operand A, operand B>
  requires own_operand<A> || own_operand<B>
auto operator*(A&& a, B&& b) {
  return joined<&ir::graph::multiply, expression_t<A>, expression_t<B>>{as_expression(a),
                                                                        as_expression(b)};
}

// One operand belongs to this library, and the other is neither an operand nor a number.
template <class A, class B>
concept mixed_up = (own_operand<A> && !operand<B> && !std::convertible_to<B, double>) ||
                   (own_operand<B> && !operand<A> && !std::convertible_to<A, double>);

template <class A, class B>
refused both_operands(const A&, const B&) {
  static_assert(never<A, B>,
                "+, - and *: both sides are tensors or expressions, or one is a number");
  return {};
}
template <class A, class B>
  requires mixed_up<A, B>
auto operator+(const A& a, const B& b) {
  return both_operands(a, b);
}
template <class A, class B>
  requires mixed_up<A, B>
auto operator-(const A& a, const B& b) {
  return both_operands(a, b);
}
template <class A, class B>
  requires mixed_up<A, B>
auto operator*(const A& a, const B& b) {
  return both_operands(a, b);
}
template <own_operand A, class B>
refused operator/(const A&, const B&) {
  static_assert(never<A, B>, "a / b: expressions have no division; multiply by the inverse");
  return {};
}

// Returns a + b or a times b if the condition holds, else a. choose would hold a twice, and a layer
// of several such parts would hold its first part many times.
template <operand A, operand B>
auto add_if(bool condition, const A& a, const B& b) {
  static_assert(expression_t<A>::rank >= expression_t<B>::rank,
                "add_if: the second operand has no more axes than the first");
  return joined<&ir::graph::add, expression_t<A>, expression_t<B>>{as_expression(a),
                                                                   as_expression(b), condition};
}
template <operand A, operand B>
auto multiply_if(bool condition, const A& a, const B& b) {
  static_assert(expression_t<A>::rank >= expression_t<B>::rank,
                "multiply_if: the second operand has no more axes than the first");
  return joined<&ir::graph::multiply, expression_t<A>, expression_t<B>>{
      as_expression(a), as_expression(b), condition};
}

// Returns e + bias, or e if the layer has no bias.
template <operand E, class T, std::size_t Rank>
auto add_bias(const E& e, const parameter<T, Rank>& bias) {
  return add_if(!bias.empty(), e, bias);
}

}  // namespace fmoe
