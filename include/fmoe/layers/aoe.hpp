// SPDX-License-Identifier: MIT
// AoE, autonomy of experts (Lv et al. 2025): the experts select themselves. C = x W_down (Eq. 4) is
// made for all experts at once, an expert's score is the norm of its part of it, and the chosen
// ones go on from there: y = sum over the chosen n of a_n (act(C_n W_up) * (x W_p)) W_o (Algorithm
// 2).
#pragma once

#include <fmoe/arrays/released.hpp>
#include <fmoe/arrays/slice.hpp>
#include <fmoe/layers/glu_expert.hpp>
#include <fmoe/layers/routing.hpp>

namespace fmoe {

// Labels: t token, d input and output, n expert, l low rank, w expert width. An empty bias is left
// out.
template <class T = float>
struct aoe {
  parameter<T, 3> down;    // d n l
  parameter<T, 3> up;      // n l w
  parameter<T, 3> linear;  // n d w
  parameter<T, 3> output;  // n w d
  parameter<T, 1> bias;    // d
  fmoe::gate score = fmoe::gate::l2_norm;
  routing route;
  pointwise activation = pointwise::silu;

  // [t, d] -> [t, n, l]: C, which scores and chosen experts share.
  auto cache(const operand_of<2> auto& x) const { return einsum<"td,dnl->tnl">(x, down); }

  // [t, d] -> [t, n].
  auto scores(const operand_of<2> auto& x) const { return norm(score, cache(x)); }

  // [t, d] -> [t, n]: a, 0 for experts that are not chosen; and 1 for the chosen ones.
  auto coefficients(const operand_of<2> auto& x) const { return route(scores(x)); }
  auto chosen(const operand_of<2> auto& x) const { return route.chosen(scores(x)); }

  // [t, d] -> [t, n, w]: every expert's hidden units.
  auto hidden(const operand_of<2> auto& x) const {
    return apply(activation, einsum<"tnl,nlw->tnw">(cache(x), up)) *
           einsum<"td,ndw->tnw">(x, linear);
  }

  // [t, n, w], [t, n] -> [t, d]: the output of these hidden units.
  auto decoded(const operand_of<3> auto& z, const operand_of<2> auto& a) const {
    return add_bias(einsum<"tn,tnw,nwd->td">(a, z, output), bias);
  }

  // [t, d], [t, n] -> [t, d]: the output that x has with these weights. Experts are skipped where
  // these are a selection.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    return decoded(hidden(x), a);
  }

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // Expert n by itself: W_down^n, W_up^n, W_p^n and W_o^n (Eq. 4). The layer adds its bias once,
  // not in an expert. Throws value_error beyond the last one.
  glu_expert<T> expert(std::size_t n) const {
    return {{},
            detail::slice<1>(down, n),
            detail::slice<0>(up, n),
            detail::slice<0>(linear, n),
            detail::slice<0>(output, n),
            activation};
  }

  // The paper's names, else the released code's.
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"W_down", presence::optional, "d(nl)", "dnl"}, layer.down);
    visit(released_name{"W_up", presence::optional, "nlw"}, layer.up);
    visit(released_name{"W_p", presence::optional, "ndw"}, layer.linear);
    visit(released_name{"W_o", presence::optional, "nwd"}, layer.output);
    visit(released_name{"wg", presence::required, "d(nl)", "dnl", "W_down"}, layer.down);
    visit(released_name{"experts.mlp.wup", presence::required, "(nw)l", "nlw", "W_up"}, layer.up);
    visit(released_name{"experts.mlp.v1", presence::required, "(nw)d", "ndw", "W_p"}, layer.linear);
    visit(released_name{"experts.mlp.w2", presence::required, "(nw)d", "nwd", "W_o"}, layer.output);
    visit(released_name{"experts.bias", presence::optional, "d"}, layer.bias);
  }
  static void describe(auto& layer, auto& file) {
    using norm_name = std::pair<std::string_view, fmoe::gate>;
    routing::describe(layer.route, file);
    detail::describe_activation(layer.activation, file);
    file.setting("norm", layer.score,
                 {norm_name{"l2", fmoe::gate::l2_norm},
                  {"l1", fmoe::gate::l1_norm},
                  {"linf", fmoe::gate::max_norm}});
  }
};

}  // namespace fmoe
