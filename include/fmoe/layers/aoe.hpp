// SPDX-License-Identifier: MIT
// AoE, autonomy of experts (Lv et al. 2025): the experts select themselves. C = x W_down (Eq. 4) is
// computed for all experts at once. The score of an expert is the norm of its part of C, and the
// chosen experts continue from their parts: y = sum over the chosen n of a_n (act(C_n W_up) * (x
// W_p)) W_o (Algorithm 2).
#pragma once

#include <fmoe/layers/moe.hpp>

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

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return not_rows(x...); }

  // Returns expert n: W_down^n, W_up^n, W_p^n and W_o^n (Eq. 4). The bias belongs to the layer, not
  // to an expert. Throws value_error if there is no such expert.
  gated_expert<T> expert(extent n) const {
    return {{},        slice<1>(down, n), slice<0>(up, n), slice<0>(linear, n), slice<0>(output, n),
            activation};
  }

  // The names of the paper, or else those of the released code.
  static auto released() {
    return std::tuple{
        released_name{"W_down", &aoe::down, presence::optional, "d(nl)", "dnl"},
        released_name{"W_up", &aoe::up, presence::optional, "nlw"},
        released_name{"W_p", &aoe::linear, presence::optional, "ndw"},
        released_name{"W_o", &aoe::output, presence::optional, "nwd"},
        released_name{"wg", &aoe::down, presence::required, "d(nl)", "dnl", "W_down"},
        released_name{"experts.mlp.wup", &aoe::up, presence::required, "(nw)l", "nlw", "W_up"},
        released_name{"experts.mlp.v1", &aoe::linear, presence::required, "(nw)d", "ndw", "W_p"},
        released_name{"experts.mlp.w2", &aoe::output, presence::required, "(nw)d", "nwd", "W_o"},
        released_name{"experts.bias", &aoe::bias, presence::optional, "d"},
    };
  }
  static void describe(auto& layer, auto& file) {
    using norm_name = std::pair<std::string_view, fmoe::gate>;
    routing::describe(layer.route, file);
    describe_activation(layer.activation, file);
    file.setting("norm", layer.score,
                 {norm_name{"l2", fmoe::gate::l2_norm},
                  {"l1", fmoe::gate::l1_norm},
                  {"linf", fmoe::gate::max_norm}});
  }
};

}  // namespace fmoe
