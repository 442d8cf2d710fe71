// SPDX-License-Identifier: MIT
// AoE, autonomy of experts (Lv et al. 2025): the experts select themselves. C = x W_down (Eq. 4) is
// computed for all experts at once. The score of an expert is the norm of its part of C, and the
// chosen experts continue from their parts: y = sum over the chosen n of a_n (act(C_n W_up) * (x
// W_p)) W_o (Algorithm 2).
#pragma once

#include <fmoe/arrays/released.hpp>
#include <fmoe/layers/expert_slice.hpp>
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
  row_norm score = row_norm::l2;
  routing route;
  pointwise activation = pointwise::silu;

  // [t, d] -> [t, n, l]: C, which the scores and the chosen experts share.
  auto cache(const operand_of<2> auto& x) const { return einsum<"td,dnl->tnl">(x, down); }

  // [t, d] -> [t, n].
  auto scores(const operand_of<2> auto& x) const { return norm(score, cache(x)); }

  // [t, d] -> [t, n]: coefficients returns a, which is 0 for experts that are not chosen; chosen
  // returns 1 for the chosen experts and 0 for the others.
  auto coefficients(const operand_of<2> auto& x) const { return route(scores(x)); }
  auto chosen(const operand_of<2> auto& x) const { return route.chosen(scores(x)); }

  // [t, d] -> [t, n, w]: the hidden units of every expert.
  auto hidden(const operand_of<2> auto& x) const {
    return apply(activation, einsum<"tnl,nlw->tnw">(cache(x), up)) *
           einsum<"td,ndw->tnw">(x, linear);
  }

  // [t, n, w], [t, n] -> [t, d]: the output of these hidden units.
  auto decoded(const operand_of<3> auto& z, const operand_of<2> auto& a) const {
    return add_bias(einsum<"tn,tnw,nwd->td">(a, z, output), bias);
  }

  // [t, d], [t, n] -> [t, d]: the output of x with these coefficients. If they are a selection, the
  // other experts are skipped.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    return decoded(hidden(x), a);
  }

  // [t, d] -> [t, n]: |a_tn E_n(x_t)|_2, the norm of each expert's contribution to a row.
  auto contribution_norms(const operand_of<2> auto& x) const {
    return contribution_norms(x, coefficients(x));
  }
  auto contribution_norms(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    return abs(a) * norm(row_norm::l2, einsum<"tnw,nwd->tnd">(hidden(x), output));
  }

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // Returns expert n: W_down^n, W_up^n, W_p^n and W_o^n (Eq. 4). The bias belongs to the layer, not
  // to an expert. Throws value_error if there is no such expert.
  glu_expert<detail::widened_t<T>> expert(std::size_t n) const {
    return {{},
            detail::expert_slice<1>(down, n),
            detail::expert_slice<0>(up, n),
            detail::expert_slice<0>(linear, n),
            detail::expert_slice<0>(output, n),
            activation};
  }

  // The names of the paper, or else those of the released code.
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
    using norm_name = std::pair<std::string_view, row_norm>;
    routing::describe(layer.route, file);
    detail::describe_activation(layer.activation, file);
    file.setting("norm", layer.score,
                 {norm_name{"l2", row_norm::l2}, {"l1", row_norm::l1}, {"linf", row_norm::max}});
    // The released code has others than the paper.
    for (const char* key : {"activation", "weighting"}) file.needed(key);
  }
};

}  // namespace fmoe
