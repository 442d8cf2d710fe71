// SPDX-License-Identifier: MIT
// The mixtures of experts that the papers compare with: sparse (Algorithm 1 of AoE, Lv et al. 2025, after Shazeer et al.
// 2017), y = sum over the chosen n of a_n E_n(x), and dense, y = sum over all n of a_n W_n x.
#pragma once

#include <fmoe/evaluate.hpp>

namespace fmoe {

// How tokens and experts find each other.
struct routing {
  enum class by : std::uint8_t {
    top_k,          // each token takes the `active` experts of the greatest scores
    top_p,          // each token takes the fewest experts whose softmax over all sums to `mass`
    expert_choice,  // each expert takes its `capacity` best tokens, of T tokens floor(T capacity_factor / n) if that is `all`
  } how = by::top_k;
  extent active = 2;
  double mass = 0.6;
  extent capacity = all;
  double capacity_factor = 2;
  bool rank_softmax = false;               // expert choice ranks the softmax over the experts, not the scores
  weighting weights = weighting::softmax;  // the papers': over the chosen ones; the released code's: softmax_of_all

  // [t, n] -> [t, n]: the experts' weights, 0 for those not chosen. Throws value_error for `active` > n, and mass beyond 0..1.
  auto operator()(const operand_of<2> auto& scores) const {
    const auto by_expert = expert_choice(scores, choose(rank_softmax, softmax(scores), scores), weights, capacity, capacity_factor);
    return choose(how == by::top_k, top_k(scores, active, weights),
                  choose(how == by::top_p, top_p(scores, mass, weights), by_expert));
  }
};

// Labels: t token, d input and output, n expert, l low rank, w expert width. An expert is
// (act(x W_g) * (x W_p)) W_o; with W_g = W_down W_up where `down` is there.
template <class T = float>
struct moe {
  parameter<T, 2> router;  // d n
  parameter<T, 3> gate;    // n d w
  parameter<T, 3> down;    // d n l
  parameter<T, 3> up;      // n l w
  parameter<T, 3> linear;  // n d w
  parameter<T, 3> output;  // n w d
  routing route;
  pointwise activation = pointwise::silu;

  // [t, d] -> [t, n].
  auto scores(const operand_of<2> auto& x) const { return einsum<"td,dn->tn">(x, router); }

  // [t, d] -> [t, n]: a, 0 for experts that are not chosen.
  auto weights(const operand_of<2> auto& x) const { return route(scores(x)); }

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& x) const {
    const auto gated = choose(down.empty(), einsum<"td,ndw->tnw">(x, gate), einsum<"td,dnl,nlw->tnw">(x, down, up));
    const auto hidden = apply(activation, gated) * einsum<"td,ndw->tnw">(x, linear);
    return einsum<"tn,tnw,nwd->td">(weights(x), hidden, output);
  }
};

}  // namespace fmoe
