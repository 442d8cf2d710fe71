// SPDX-License-Identifier: MIT
// The sparse mixture of experts that the AoE paper compares with (Algorithm 1 of Lv et al. 2025,
// after Shazeer et al. 2017): y = sum over the chosen n of a_n E_n(x).
#pragma once

#include <fmoe/arrays/released.hpp>
#include <fmoe/layers/expert_slice.hpp>
#include <fmoe/layers/glu_expert.hpp>
#include <fmoe/layers/routing.hpp>

namespace fmoe {

// Labels: t token, d input and output, n expert, l low rank, w expert width. An expert is (act(x
// W_g) * (x W_p)) W_o; W_g = W_down W_up if `down` is set.
template <class T = float>
struct moe {
  parameter<T, 2> router;     // d n
  parameter<T, 3> activated;  // n d w, W_g
  parameter<T, 3> down;       // d n l
  parameter<T, 3> up;         // n l w
  parameter<T, 3> linear;     // n d w
  parameter<T, 3> output;     // n w d
  routing route;
  pointwise activation = pointwise::silu;

  // [t, d] -> [t, n].
  auto scores(const operand_of<2> auto& x) const { return einsum<"td,dn->tn">(x, router); }

  // [t, d] -> [t, n]: coefficients returns a, which is 0 for experts that are not chosen; chosen
  // returns 1 for the chosen experts and 0 for the others.
  auto coefficients(const operand_of<2> auto& x) const { return route(scores(x)); }
  auto chosen(const operand_of<2> auto& x) const { return route.chosen(scores(x)); }

  // [t, d] -> [t, n, w]: the hidden units of every expert.
  auto hidden(const operand_of<2> auto& x) const {
    const auto preactivation = choose(down.empty(), einsum<"td,ndw->tnw">(x, activated),
                                      einsum<"td,dnl,nlw->tnw">(x, down, up));
    return apply(activation, preactivation) * einsum<"td,ndw->tnw">(x, linear);
  }

  // [t, n, w], [t, n] -> [t, d]: the output of these hidden units.
  auto decoded(const operand_of<3> auto& z, const operand_of<2> auto& a) const {
    return einsum<"tn,tnw,nwd->td">(a, z, output);
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

  // Returns expert n. Throws value_error if there is no such expert.
  glu_expert<T> expert(std::size_t n) const {
    const auto w_o = detail::expert_slice<0>(output, n), w_p = detail::expert_slice<0>(linear, n);
    if (down.empty()) return {detail::expert_slice<0>(activated, n), {}, {}, w_p, w_o, activation};
    return {{},        detail::expert_slice<1>(down, n), detail::expert_slice<0>(up, n), w_p, w_o,
            activation};
  }

  static void released(auto& layer, auto&& visit) {
    visit(released_name{"router", presence::required, "dn"}, layer.router);
    visit(released_name{"W_g", presence::required, "ndw", "ndw", "W_down"}, layer.activated);
    visit(released_name{"W_down", presence::optional, "d(nl)", "dnl"}, layer.down);
    visit(released_name{"W_up", presence::optional, "nlw"}, layer.up);
    visit(released_name{"W_p", presence::required, "ndw"}, layer.linear);
    visit(released_name{"W_o", presence::required, "nwd"}, layer.output);
  }
  static void describe(auto& layer, auto& file) {
    routing::describe(layer.route, file);
    detail::describe_activation(layer.activation, file);
  }
};

}  // namespace fmoe
