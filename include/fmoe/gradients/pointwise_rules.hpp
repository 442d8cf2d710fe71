// SPDX-License-Identifier: MIT
// Functions of one number, and of two: the cotangent times the derivative. Where a function has a
// corner, PyTorch's side counts; a maximum of two equal numbers gives each one half.
#pragma once

#include <cmath>
#include <numbers>

#include <fmoe/gradients/cotangents.hpp>

namespace fmoe::reverse {

// x within the bounds beyond which second derivatives are 0, so that no power of it overflows.
inline node_id near_zero(ir::graph& g, node_id x) {
  constexpr double bound = 40;
  return g.map(pointwise::at_most, bound, g.map(pointwise::at_least, -bound, x));
}
// phi(x) (2 - x^2), phi the density of a normal distribution.
inline node_id curvature_of_gelu(ir::graph& g, node_id of) {
  const node_id x = near_zero(g, of), square = times(g, x, x);
  const double height = 1 / std::sqrt(2 * std::numbers::pi);
  const node_id phi = scaled(g, g.map(pointwise::exp, 0, scaled(g, square, -0.5)), height);
  return times(g, phi, g.map(pointwise::shift, 2, g.map(pointwise::negate, 0, square)));
}
// (1 - t^2) (u' + x (u'' / 2 - t u'^2)) with t = tanh u, u = k (x + a x^3).
inline node_id curvature_of_gelu_tanh(ir::graph& g, node_id of) {
  constexpr double a = 0.044715;
  const double k = std::sqrt(2 / std::numbers::pi);
  const node_id x = near_zero(g, of), square = times(g, x, x);
  const node_id u = times(g, x, g.map(pointwise::shift, k, scaled(g, square, k * a))),
                slope = g.map(pointwise::shift, k, scaled(g, square, 3 * k * a));
  const node_id t = g.map(pointwise::tanh, 0, u);
  const node_id rest = g.map(pointwise::shift, 1, g.map(pointwise::negate, 0, times(g, t, t)));
  const node_id bend = minus(g, scaled(g, x, 3 * k * a), times(g, t, times(g, slope, slope)));
  return times(g, rest, g.add(slope, times(g, x, bend)));
}
// s (1 - s) (2 + x (1 - 2 s)) with s = sigmoid(x).
inline node_id curvature_of_silu(ir::graph& g, node_id x) {
  const node_id s = g.map(pointwise::sigmoid, 0, x), slope = minus(g, s, times(g, s, s)),
                bend = times(g, x, g.map(pointwise::shift, 1, scaled(g, s, -2)));
  return times(g, slope, g.map(pointwise::shift, 2, bend));
}

// The cotangent of x where y = f(x).
inline node_id cotangent_of_argument(ir::graph& g, const number_function& f, node_id x, node_id y,
                                     node_id c) {
  using enum pointwise;
  const double p = f.parameter;
  const auto has_no_rule = [&](const std::string& reason) {
    throw value_error("[gradient] " + std::string(f.name()) + ' ' + reason);
    return c;
  };
  if (f.own != nullptr) {
    if (f.own->slope == nullptr)
      return has_no_rule("is a function of the user's, which has no derivative");
    return times(g, c, g.map({.own = f.own->slope}, x));
  }
  switch (f.fn) {
    case relu: return keep(g, c, x);
    case gelu: return times(g, c, g.map(gelu_slope, 0, x));
    case gelu_tanh: return times(g, c, g.map(gelu_tanh_slope, 0, x));
    case silu: return times(g, c, g.map(silu_slope, 0, x));
    case sigmoid: return times(g, c, minus(g, y, times(g, y, y)));
    case squared_relu: return times(g, c, scaled(g, g.map(relu, 0, x), 2));
    case exp: return times(g, c, y);
    case sqrt: return g.divide(scaled(g, c, 0.5), y);
    case inverse_sqrt: return times(g, c, scaled(g, times(g, y, times(g, y, y)), -0.5));
    case negate: return g.map(negate, 0, c);
    case scale: return scaled(g, c, p);
    case shift: return c;
    case threshold:
    case at_least: return drop(g, c, g.map(shift, p, g.map(negate, 0, x)));  // where p - x > 0
    case at_most: return drop(g, c, g.map(shift, -p, x));
    case tanh: return minus(g, c, times(g, c, times(g, y, y)));
    case log: return g.divide(c, x);
    case abs: return signed_by(g, c, x);
    case quotient: return g.map(quotient, p, c);
    case inverse: return times(g, c, scaled(g, times(g, y, y), -1 / p));
    case power: return times(g, c, scaled(g, g.map(power, p - 1, x), p));
    case gelu_slope: return times(g, c, curvature_of_gelu(g, x));
    case gelu_tanh_slope: return times(g, c, curvature_of_gelu_tanh(g, x));
    case silu_slope: return times(g, c, curvature_of_silu(g, x));
  }
  return c;
}

inline void pull(cotangents& to, const ir::map_node& m, node_id y, node_id c) {
  if (m.f.fn == pointwise::scale && m.f.parameter == 0) return;  // a constant
  if (to.needs(m.arg)) to.give(m.arg, cotangent_of_argument(to.g, m.f, m.arg, y, c));
}

// The cotangent of an operand with fewer axes is summed along those that it lacks.
inline node_id summed_to(ir::graph& g, node_id c, node_id operand) {
  const std::string l = letters(g, c), own = l.substr(l.size() - g.rank(operand));
  return own == l ? c : g.einsum(l + "->" + own, {c});
}

// c where x > y, and half of it where they are equal.
inline node_id where_greater(ir::graph& g, node_id c, node_id difference) {
  const node_id less = g.map(pointwise::negate, 0, difference);
  const node_id equal = drop(g, drop(g, c, difference), less);
  return g.add(keep(g, c, difference), scaled(g, equal, 0.5));
}

inline void pull(cotangents& to, const ir::join_node& j, node_id y, node_id c) {
  ir::graph& g = to.g;
  const bool left = to.needs(j.left), right = to.needs(j.right);
  const auto give_right = [&](node_id part) { to.give(j.right, summed_to(g, part, j.right)); };
  const auto difference = [&] {  // of the greater and the other one
    const node_id d = minus(g, j.left, j.right);
    return j.what == pass_kind::max ? d : g.map(pointwise::negate, 0, d);
  };
  switch (j.what) {
    case pass_kind::add:
      if (left) to.give(j.left, c);
      if (right) give_right(c);
      return;
    case pass_kind::divide:
      if (left) to.give(j.left, g.divide(c, j.right));
      if (right) give_right(g.map(pointwise::negate, 0, g.divide(times(g, c, y), j.right)));
      return;
    case pass_kind::max:
    case pass_kind::min:
      if (left) to.give(j.left, where_greater(g, c, difference()));
      if (right) give_right(where_greater(g, c, g.map(pointwise::negate, 0, difference())));
      return;
    case pass_kind::keep: return to.give(j.left, keep(g, c, j.right));
    case pass_kind::drop: return to.give(j.left, drop(g, c, j.right));
    case pass_kind::map:
    case pass_kind::multiply: return;  // nodes of other kinds
  }
}

}  // namespace fmoe::reverse
