// SPDX-License-Identifier: MIT
// Functions of one number, sums, differences and Hadamard products. Operands of different rank are
// aligned at their last axes, and the one with fewer axes is repeated along the leading axes of the
// other. Aligned extents must be equal: an extent of 1 is not stretched.
#pragma once

#include <algorithm>
#include <limits>

#include <fmoe/expr/operations.hpp>

namespace fmoe::detail {

template <class E>
concept mappable = operand<E> || uncalled<E>;

// Operands of an operator, one of them fmoe's, which is asked first: array_traits of other types
// are not looked at before. The operators take forwarding references: xtensor's do so for any type,
// and those of fmoe, which require more, are preferred.
template <class A, class B>
concept joinable = (own_operand<A> || own_operand<B>) && operand<A> && operand<B>;

// The axes of two operands element by element.
template <operand A, operand B>
inline constexpr extent joined_rank = std::max(expression_t<A>::rank, expression_t<B>::rank);

template <class F, operand A, operand B>
auto joined(const F& f, const A& a, const B& b) {
  return typed<joined_rank<A, B>>(f, a, b);
}
// The same if the condition holds, else a.
template <class F, operand A, operand B>
auto joined_if(bool condition, const F& f, const A& a, const B& b) {
  return typed_choice<expression_t<A>::rank>(
      [&](const dynamic::expression& x, const dynamic::expression& y) {
        return condition ? f(x, y) : x;
      },
      a, b);
}

// A number beside an operand. It is a class, because clang 14 stops at an operator of
// numbers alone before it asks whether the other operand is fmoe's.
struct plain_number {
  double value;
  plain_number(const std::convertible_to<double> auto& v) : value(static_cast<double>(v)) {}
};

// One operand belongs to this library, and the other is neither an operand nor a number.
template <class A, class B>
concept mixed_up = (own_operand<A> && !operand<B> && !std::convertible_to<B, double>) ||
                   (own_operand<B> && !operand<A> && !std::convertible_to<A, double>);

template <class A, class B>
refused both_operands(const A&, const B&) {
  static_assert(never<A, B>,
                "+, -, * and /: both sides are tensors or expressions, or one is a number");
  return {};
}

}  // namespace fmoe::detail

namespace fmoe {

// fn of every element; `parameter` is the factor of scale, the summand of shift, the bound of
// threshold, at_least and at_most, the divisor of quotient and the dividend of inverse. The operand
// is a forwarding reference, as std::apply's is: with another one std::apply would be the better
// match where both are visible.
template <operand E>
auto apply(pointwise fn, E&& e, double parameter = 0) {
  return detail::typed<expression_t<E>::rank>(
      [=](const dynamic::expression& x) { return dynamic::apply(fn, x, parameter); }, e);
}
template <class E>
  requires detail::uncalled<std::remove_cvref_t<E>>
detail::refused apply(pointwise, E&&, double = 0) {
  static_assert(
      detail::never<E>,
      "relu and its like take a tensor or an expression; for a layer write relu(layer(x))");
  return {};
}

// These functions apply to every element.
auto relu(const detail::mappable auto& e) { return apply(pointwise::relu, e); }
auto gelu(const detail::mappable auto& e) { return apply(pointwise::gelu, e); }
auto gelu_tanh(const detail::mappable auto& e) { return apply(pointwise::gelu_tanh, e); }
auto silu(const detail::mappable auto& e) { return apply(pointwise::silu, e); }
auto sigmoid(const detail::mappable auto& e) { return apply(pointwise::sigmoid, e); }
auto squared_relu(const detail::mappable auto& e) { return apply(pointwise::squared_relu, e); }
auto exp(const detail::own_operand auto& e) { return apply(pointwise::exp, e); }
auto sqrt(const detail::own_operand auto& e) { return apply(pointwise::sqrt, e); }
auto tanh(const detail::own_operand auto& e) { return apply(pointwise::tanh, e); }
auto log(const detail::own_operand auto& e) { return apply(pointwise::log, e); }
auto abs(const detail::own_operand auto& e) { return apply(pointwise::abs, e); }
auto inverse_sqrt(const detail::mappable auto& e) { return apply(pointwise::inverse_sqrt, e); }
auto operator-(const detail::own_operand auto& e) { return apply(pointwise::negate, e); }
auto operator*(detail::plain_number factor, const detail::own_operand auto& e) {
  return apply(pointwise::scale, e, factor.value);
}
auto operator*(const detail::own_operand auto& e, detail::plain_number factor) {
  return factor * e;
}
auto operator+(const detail::own_operand auto& e, detail::plain_number summand) {
  return apply(pointwise::shift, e, summand.value);
}
auto operator+(detail::plain_number summand, const detail::own_operand auto& e) {
  return e + summand.value;
}
auto operator-(const detail::own_operand auto& e, detail::plain_number subtrahend) {
  return e + -subtrahend.value;
}
auto operator-(detail::plain_number minuend, const detail::own_operand auto& e) {
  return -e + minuend.value;
}
auto operator/(const detail::own_operand auto& e, detail::plain_number divisor) {
  return apply(pointwise::quotient, e, divisor.value);
}
auto operator/(detail::plain_number dividend, const detail::own_operand auto& e) {
  return apply(pointwise::inverse, e, dividend.value);
}

// NaN stays NaN in max, min and clamp.
auto max(const detail::own_operand auto& e, detail::plain_number least) {
  return apply(pointwise::at_least, e, least.value);
}
auto max(detail::plain_number least, const detail::own_operand auto& e) { return max(e, least); }
auto min(const detail::own_operand auto& e, detail::plain_number most) {
  return apply(pointwise::at_most, e, most.value);
}
auto min(detail::plain_number most, const detail::own_operand auto& e) { return min(e, most); }
auto clamp(const detail::own_operand auto& e, double least, double most) {
  return min(max(e, least), most);
}

// These work element by element.
template <class A, class B>
  requires detail::joinable<A, B>
auto operator+(A&& a, B&& b) {
  return detail::joined(dynamic::add, a, b);
}
template <class A, class B>
  requires detail::joinable<A, B>
auto operator-(A&& a, B&& b) {
  return a + fmoe::apply(pointwise::negate, b);  // not std::apply
}
template <class A, class B>
  requires detail::joinable<A, B>
auto operator*(A&& a, B&& b) {
  return detail::joined(dynamic::multiply, a, b);
}
template <class A, class B>
  requires detail::joinable<A, B>
auto operator/(A&& a, B&& b) {
  return detail::joined(dynamic::divide, a, b);
}
template <class A, class B>
  requires detail::joinable<A, B>
auto max(A&& a, B&& b) {
  return detail::joined(dynamic::max, a, b);
}
template <class A, class B>
  requires detail::joinable<A, B>
auto min(A&& a, B&& b) {
  return detail::joined(dynamic::min, a, b);
}
// These are preferred to std::max and std::min where both are visible.
template <detail::own_operand E>
auto max(const E& a, const E& b) {
  return max<const E&, const E&>(a, b);
}
template <detail::own_operand E>
auto min(const E& a, const E& b) {
  return min<const E&, const E&>(a, b);
}

// a where the condition is above 0, else b. The condition has no more axes than a and b.
//
//   const auto leaky = where(x, x, 0.01 * x);
template <operand C, operand A, operand B>
auto where(const C& condition, const A& a, const B& b) {
  static_assert(expression_t<C>::rank <= expression_t<A>::rank &&
                    expression_t<C>::rank <= expression_t<B>::rank,
                "where: the condition has no more axes than the two values");
  return detail::typed<detail::joined_rank<A, B>>(dynamic::where, condition, a, b);
}

template <class A, class B>
  requires detail::mixed_up<A, B>
auto operator+(const A& a, const B& b) {
  return detail::both_operands(a, b);
}
template <class A, class B>
  requires detail::mixed_up<A, B>
auto operator-(const A& a, const B& b) {
  return detail::both_operands(a, b);
}
template <class A, class B>
  requires detail::mixed_up<A, B>
auto operator*(const A& a, const B& b) {
  return detail::both_operands(a, b);
}
template <class A, class B>
  requires detail::mixed_up<A, B>
auto operator/(const A& a, const B& b) {
  return detail::both_operands(a, b);
}

// x where x >= bound, else 0; NaN stays NaN.
auto threshold(const operand auto& e, double bound) {
  return apply(pointwise::threshold, e, bound);
}

// Returns a + b or a times b if the condition holds, else a.
template <operand A, operand B>
auto add_if(bool condition, const A& a, const B& b) {
  static_assert(expression_t<A>::rank >= expression_t<B>::rank,
                "add_if: the second operand has no more axes than the first");
  return detail::joined_if(condition, dynamic::add, a, b);
}
template <operand A, operand B>
auto multiply_if(bool condition, const A& a, const B& b) {
  static_assert(expression_t<A>::rank >= expression_t<B>::rank,
                "multiply_if: the second operand has no more axes than the first");
  return detail::joined_if(condition, dynamic::multiply, a, b);
}

namespace detail {

// Returns e where it is above its bound, else 0; NaN stays.
template <operand E, operand B>
auto raised_above(const E& e, const B& bound) {
  return typed<expression_t<E>::rank>(detail::above, e, bound);
}

// Returns numbers for zero_if that are above 0 where those of e, which are floats, are 0 or more.
auto at_least_0(const operand auto& e) {
  return e + static_cast<double>(std::numeric_limits<float>::denorm_min());
}

}  // namespace detail

// Returns a with 0 where the numbers of `where` are above 0, if the condition holds; else a.
template <operand A, operand W>
auto zero_if(bool condition, const A& a, const W& where) {
  static_assert(expression_t<A>::rank >= expression_t<W>::rank,
                "zero_if: the second operand has no more axes than the first");
  return detail::joined_if(condition, detail::drop, a, where);
}

// Returns e + bias, or e if the layer has no bias.
template <operand E, class T, std::size_t Rank>
auto add_bias(const E& e, const parameter<T, Rank>& bias) {
  return add_if(!bias.empty(), e, bias);
}

}  // namespace fmoe
