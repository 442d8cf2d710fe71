// SPDX-License-Identifier: MIT
// Map: a function of each number. A program has it as a pass over what another operation makes, or
// over a copy of it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/error.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/pointwise.hpp>

namespace fmoe::ir {

// x within the bounds beyond which second derivatives are 0, so that no power of it overflows.
node_id near_zero(auto& g, node_id x) {
  constexpr double bound = 40;
  return g.map(pointwise::at_most, bound, g.map(pointwise::at_least, -bound, x));
}
// phi(x) (2 - x^2), phi the density of a normal distribution.
node_id curvature_of_gelu(auto& g, node_id of) {
  const node_id x = near_zero(g, of), square = times(g, x, x);
  const double height = 1 / std::sqrt(2 * std::numbers::pi);
  const node_id phi = scaled(g, g.map(pointwise::exp, 0, scaled(g, square, -0.5)), height);
  return times(g, phi, g.map(pointwise::shift, 2, g.map(pointwise::negate, 0, square)));
}
// (1 - t^2) (u' + x (u'' / 2 - t u'^2)) with t = tanh u, u = k (x + a x^3).
node_id curvature_of_gelu_tanh(auto& g, node_id of) {
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
node_id curvature_of_silu(auto& g, node_id x) {
  const node_id s = g.map(pointwise::sigmoid, 0, x), slope = minus(g, s, times(g, s, s)),
                bend = times(g, x, g.map(pointwise::shift, 1, scaled(g, s, -2)));
  return times(g, slope, g.map(pointwise::shift, 2, bend));
}

struct map_node {
  number_function f;
  node_id arg;
  bool operator==(const map_node&) const = default;
  void add_to_hash(const auto& add) const {
    add(static_cast<extent>(f.fn));
    add(std::bit_cast<std::uint64_t>(f.parameter + 0.0));  // of -0, which is equal, too
  }

  static void each_operand(auto& self, const auto& f) { f(self.arg); }
  const char* name() const { return f.name(); }

  vector<axis_id> axes(auto& graph) const { return graph[arg].axes; }
  auto token_axis(auto& tokens) const { return tokens.at(arg); }

  auto lower(auto& to) const {
    const axis_labels names = to.letters(arg);
    const auto in = to.named(arg, names),
               out = to.program().make(planner::pointwise_op{}, {in}, in.labels);
    to.program().operations.back().passes = {{pass_kind::map, f}};
    return to.place(out, names);
  }

  // The cotangent times the derivative. Where a function has a corner, PyTorch's side counts.
  node_id cotangent(auto& g, node_id y, node_id c) const {
    using enum pointwise;
    const double p = f.parameter;
    const node_id x = arg;
    const auto has_no_rule = [&](const std::string& reason) {
      throw value_error("[gradient] " + std::string(name()) + ' ' + reason);
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
      case at_least: return g.drop(c, g.map(shift, p, g.map(negate, 0, x)));  // where p - x > 0
      case at_most: return g.drop(c, g.map(shift, -p, x));
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
  void pull(auto& to, node_id y, node_id c) const {
    if (f.fn == pointwise::scale && f.parameter == 0) return;  // a constant
    if (to.needs(arg)) to.give(arg, cotangent(to.g, y, c));
  }

  void list_ways(auto& ways) const {
    const bool is_linear =
        f.own == nullptr && (f.fn == pointwise::scale || f.fn == pointwise::negate);
    ways.add_rows(is_linear);
    ways.add_along_label();
    if (is_linear) ways.add_partial_of({0});
  }
};

}  // namespace fmoe::ir
