// SPDX-License-Identifier: MIT
// The mixtures of experts with which the papers compare: sparse (Algorithm 1 of AoE, Lv et al.
// 2025, after Shazeer et al. 2017), y = sum over the chosen n of a_n E_n(x), and dense, y = sum
// over all n of a_n W_n x.
#pragma once

#include <tuple>

#include <fmoe/arrays/released.hpp>
#include <fmoe/arrays/slice.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe {

// Says how tokens and experts are assigned to each other.
struct routing {
  enum class by : std::uint8_t {
    top_k,          // each token takes the `active` experts with the greatest scores
    top_p,          // each token takes the fewest experts whose softmax over all sums to `mass`
    expert_choice,  // each expert takes its `capacity` best tokens; if that is `all`, floor(T
                    // capacity_factor / n) of T tokens
  } how = by::top_k;
  extent active = 2;
  double mass = 0.6;
  extent capacity = all;
  double capacity_factor = 2;
  // Expert choice ranks the softmax over the experts instead of the scores.
  bool rank_softmax = false;
  // The papers take the softmax over the chosen experts, the released code takes softmax_of_all.
  weighting weights = weighting::softmax;

  // [t, n] -> [t, n]: 1 for the chosen experts, 0 for the others.
  auto chosen(const operand_of<2> auto& scores) const {
    routing counting = *this;
    counting.weights = weighting::one;
    return counting(scores);
  }

  // [t, n] -> [t, n]: the weights of the experts, 0 for those that are not chosen. Throws
  // value_error for `active` > n, and for a mass outside [0, 1].
  auto operator()(const operand_of<2> auto& scores) const {
    const auto by_expert = expert_choice(scores, choose(rank_softmax, softmax(scores), scores),
                                         weights, capacity, capacity_factor);
    return choose(how == by::top_k, top_k(scores, active, weights),
                  choose(how == by::top_p, top_p(scores, mass, weights), by_expert));
  }

  static void describe(auto& route, auto& file) {
    using strategy = std::pair<std::string_view, by>;
    using weight = std::pair<std::string_view, weighting>;
    file.setting(
        "strategy", route.how,
        {strategy{"topk", by::top_k}, {"topp", by::top_p}, {"expert_choice", by::expert_choice}});
    file.setting("weighting", route.weights,
                 {weight{"paper", weighting::softmax}, {"released", weighting::softmax_of_all}});
    file.setting("select_on", route.rank_softmax,
                 {{"scores", false}, {"norms", false}, {"logits", false}, {"softmax", true}});
    file.number("K", route.active);
    file.number("P", route.mass);
    file.number("capacity_factor", route.capacity_factor);
    file.number("capacity", route.capacity);
  }
};

// The setting in the metadata for the activation of an expert.
void describe_activation(auto& activation, auto& file) {
  using name = std::pair<std::string_view, pointwise>;
  file.setting("activation", activation,
               {name{"silu", pointwise::silu},
                {"gelu_tanh", pointwise::gelu_tanh},
                {"gelu", pointwise::gelu},
                {"relu", pointwise::relu}});
}

// One expert, (act(x W_g) * (x W_p)) W_o; W_g = W_down W_up if `down` is set.
template <class T = float>
struct gated_expert {
  parameter<T, 2> gate;    // d w
  parameter<T, 2> down;    // d l
  parameter<T, 2> up;      // l w
  parameter<T, 2> linear;  // d w
  parameter<T, 2> output;  // w d
  pointwise activation = pointwise::silu;

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& x) const {
    const auto gated =
        choose(down.empty(), einsum<"td,dw->tw">(x, gate), einsum<"td,dl,lw->tw">(x, down, up));
    return einsum<"tw,wd->td">(apply(activation, gated) * einsum<"td,dw->tw">(x, linear), output);
  }
  auto operator()(const auto&... x) const { return not_rows(x...); }
};

// Labels: t token, d input and output, n expert, l low rank, w expert width. An expert is (act(x
// W_g) * (x W_p)) W_o; W_g = W_down W_up if `down` is set.
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

  // [t, d] -> [t, n]: coefficients returns a, which is 0 for experts that are not chosen; chosen
  // returns 1 for the chosen experts and 0 for the others.
  auto coefficients(const operand_of<2> auto& x) const { return route(scores(x)); }
  auto chosen(const operand_of<2> auto& x) const { return route.chosen(scores(x)); }

  // [t, d] -> [t, n, w]: the hidden units of every expert.
  auto hidden(const operand_of<2> auto& x) const {
    const auto gated = choose(down.empty(), einsum<"td,ndw->tnw">(x, gate),
                              einsum<"td,dnl,nlw->tnw">(x, down, up));
    return apply(activation, gated) * einsum<"td,ndw->tnw">(x, linear);
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

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return not_rows(x...); }

  // Returns expert n. Throws value_error if there is no such expert.
  gated_expert<T> expert(extent n) const {
    const auto w_o = slice<0>(output, n), w_p = slice<0>(linear, n);
    if (down.empty()) return {slice<0>(gate, n), {}, {}, w_p, w_o, activation};
    return {{}, slice<1>(down, n), slice<0>(up, n), w_p, w_o, activation};
  }

  static auto released() {
    return std::tuple{
        released_name{"router", &moe::router, presence::required, "dn"},
        released_name{"W_g", &moe::gate, presence::required, "ndw", "ndw", "W_down"},
        released_name{"W_down", &moe::down, presence::optional, "d(nl)", "dnl"},
        released_name{"W_up", &moe::up, presence::optional, "nlw"},
        released_name{"W_p", &moe::linear, presence::required, "ndw"},
        released_name{"W_o", &moe::output, presence::required, "nwd"},
    };
  }
  static void describe(auto& layer, auto& file) {
    routing::describe(layer.route, file);
    describe_activation(layer.activation, file);
  }
};

// The dense, or soft, mixture: every token takes every expert, y = sum over n of a_n W_n x with a =
// entmax(x G), which is the softmax for alpha 1. Labels as above; i input, o output.
template <class T = float>
struct soft_moe {
  parameter<T, 2> router;   // i n
  parameter<T, 3> experts;  // n i o
  double alpha = 1;

  // [t, i] -> [t, n]: a.
  auto coefficients(const operand_of<2> auto& x) const {
    return entmax(einsum<"ti,in->tn">(x, router), alpha);
  }

  // [t, i], [t, n] -> [t, o]: the output of x with these coefficients.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    return einsum<"tn,ti,nio->to">(a, x, experts);
  }

  // [t, i] -> [t, o].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return not_rows(x...); }

  // Returns W_n [i, o]. Throws value_error if there is no such expert.
  auto expert(extent n) const { return as_expression(slice<0>(experts, n)); }

  static auto released() {
    return std::tuple{
        released_name{"G", &soft_moe::router, presence::required, "in"},
        released_name{"W", &soft_moe::experts, presence::required, "nio"},
    };
  }
  static void describe(auto& layer, auto& file) {
    file.setting("phi", layer.alpha, {{"softmax", 1}, {"entmax15", 1.5}, {"sparsemax", 2}});
  }
};

// MoV, a mixture of vectors (Zadouri et al. 2024): W_n = diag(c_n) D, so y = ((a C) * z) D. This is
// the other unfolding of MxD's weights. Label: h hidden unit.
template <class T = float>
struct mov {
  parameter<T, 2> scales;   // n h, row n is c_n
  parameter<T, 2> decoder;  // h o

  // [t, h], [t, n] -> [t, o]: the caller passes z and a.
  auto operator()(const operand_of<2> auto& hidden, const operand_of<2> auto& coefficients) const {
    return einsum<"tn,nh,th,ho->to">(coefficients, scales, hidden, decoder);
  }
  template <class... Xs>
  refused operator()(const Xs&...) const {
    static_assert(
        never<Xs...>,
        "mov takes two operands, [token, hidden unit] and the coefficients [token, expert]");
    return {};
  }

  // Returns W_n = diag(c_n) D [h, o]. Throws value_error if there is no such expert.
  auto expert(extent n) const { return einsum<"h,ho->ho">(slice<0>(scales, n), decoder); }
};

}  // namespace fmoe
