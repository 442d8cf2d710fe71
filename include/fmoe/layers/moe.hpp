// SPDX-License-Identifier: MIT
// The sparse mixture of experts that the AoE paper compares with (Algorithm 1 of Lv et al. 2025,
// after Shazeer et al. 2017): y = sum over the chosen n of a_n E_n(x). Its optional parts are those
// of released models: Mixtral, Qwen-MoE, OLMoE, DeepSeek-V3, Llama 4, gpt-oss, Nemotron 3, LongCat,
// Phi-3.5.
#pragma once

#include <cmath>

#include <fmoe/arrays/released.hpp>
#include <fmoe/layers/expert_slice.hpp>
#include <fmoe/layers/glu_expert.hpp>
#include <fmoe/layers/routing.hpp>
#include <fmoe/layers/zero_experts.hpp>

namespace fmoe {

// Labels: t token, d input and output, n expert, l low rank, w expert width. An expert is (act(x
// W_g + b_g) * (x W_p + b_p)) W_o + b_o; W_g = W_down W_up if `down` is set. What is empty is left
// out: without `linear` an expert is act(x W_g + b_g) W_o + b_o, as in Nemotron-H. With
// `latent_down` and `latent_up` the chosen experts take the latent x W_in, and y is their sum times
// W_out, as in Nemotron 3 Super: d is then the width of the latent in the shapes of the experts.
// With `zero_router` there are z experts more, which return x and have no weights, as in LongCat:
// tokens choose among all n + z, and those that they choose of the z cost no product with weights.
// What chooses experts, and the gate of the shared one, is in the type of the layer's arithmetic:
// where T has 16 or 8 bits, a token still has the experts that floats give it.
template <class T = float>
struct moe {
  using exact = detail::arithmetic_t<T>;

  parameter<exact, 2> router;  // d n
  parameter<T, 3> activated;   // n d w, W_g
  parameter<T, 3> down;        // d n l
  parameter<T, 3> up;          // n l w
  parameter<T, 3> linear;      // n d w
  parameter<T, 3> output;      // n w d
  routing route;
  pointwise activation = pointwise::silu;
  parameter<exact, 1> router_bias = {};  // n
  parameter<exact, 1> balance = {};      // n, ranks the experts beside their scores
  parameter<T, 2> activated_bias = {};   // n w
  parameter<T, 2> linear_bias = {};      // n w
  parameter<T, 2> output_bias = {};      // n d
  glu_expert<T> shared = {};             // an expert that all tokens have
  parameter<exact, 1> shared_gate = {};  // d: its output is multiplied with sigmoid(x g)
  double scale = 1;                      // of the sum over the chosen experts
  double limit = 0;                      // of hidden units, in `limit_form`; 0: none
  bool weighs_input = false;             // E_n(a_n x) instead of a_n E_n(x), as in Llama 4
  glu_limit limit_form = glu_limit::swiglu_oai;
  parameter<T, 2> latent_down = {};  // d e, W_in: experts take x W_in, and d is e in their shapes
  parameter<T, 2> latent_up = {};    // e d, W_out
  parameter<exact, 2> zero_router = {};   // d z, of experts that return x
  parameter<exact, 1> zero_balance = {};  // z, behind `balance`

  // [t, d] -> [t, n + z]: z is 0 without zero experts, whose scores are the last ones.
  auto scores(const operand_of<2> auto& x) const {
    return detail::appended_if(!zero_router.empty(),
                               add_bias(einsum<"td,dn->tn">(x, router), router_bias),
                               einsum<"td,dz->tz">(x, zero_router));
  }

  // [t, d] -> [t, n + z]: coefficients returns a, which is 0 for experts that are not chosen;
  // chosen returns 1 for the chosen experts and 0 for the others. Throws value_error if of experts
  // and zero experts one alone has a balance.
  auto coefficients(const operand_of<2> auto& x) const {
    return route(scores(x), balances(), !balance.empty());
  }
  auto chosen(const operand_of<2> auto& x) const {
    return route.chosen(scores(x), balances(), !balance.empty());
  }

  // [t, d] -> [t, n, w]: the hidden units of every expert but the zero experts, which have none.
  auto hidden(const operand_of<2> auto& x) const {
    const auto v = latent(x);
    return detail::gated(activation, limit, limit_form, !linear.empty(),
                         add_bias(preactivations(v), activated_bias),
                         add_bias(einsum<"td,ndw->tnw">(v, linear), linear_bias));
  }

  // [t, n, w], [t, n + z] -> [t, d]: the output of these hidden units, without the shared expert
  // and what zero experts return.
  auto decoded(const operand_of<3> auto& z, const operand_of<2> auto& a) const {
    detail::expect_latent(*this);
    const auto y = add_if(!output_bias.empty(), einsum<"tn,tnw,nwd->td">(of_weights(a), z, output),
                          einsum<"tn,nd->td">(of_weights(a), output_bias));
    const auto projected = detail::projected(y, latent_up);
    return choose(scale == 1, projected, scale * projected);
  }

  // [t, d], [t, n + z] -> [t, d]: the output of x with these coefficients. If they are a selection,
  // the other experts are skipped. Throws value_error for an input that is weighed beside biases or
  // a limit.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    const auto y = choose(weighs_input, decoded(hidden_of_weighed(x, a), a), decoded(hidden(x), a));
    const auto returned = einsum<"t,td->td">(einsum<"tz->t">(of_zero_experts(a)), x);
    return add_if(!shared.output.empty(), add_if(!zero_router.empty(), y, scale * returned),
                  choose(shared_gate.empty(), shared(x), gated_shared(x)));
  }

  // [t, d] -> [t, n + z]: |a_tn E_n(x_t)|_2, the norm of each expert's contribution to a row of y;
  // with a latent that of E_n(x_t W_in) W_out, and E_n(x_t) = x_t of zero experts.
  auto contribution_norms(const operand_of<2> auto& x) const {
    return contribution_norms(x, coefficients(x));
  }
  auto contribution_norms(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    const auto z = choose(weighs_input, hidden_of_weighed(x, a), hidden(x));
    const auto y = add_bias(einsum<"tnw,nwd->tnd">(z, output), output_bias);
    const auto norms = norm(row_norm::l2, detail::projected(y, latent_up));
    const auto own = detail::columns_if(!zero_router.empty(), a, 0, experts());
    return std::abs(scale) *
           detail::appended_if(!zero_router.empty(), abs(own) * norms,
                               einsum<"tz,t->tz">(abs(of_zero_experts(a)), norm(row_norm::l2, x)));
  }

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // Returns expert n, without its coefficient and the scale. Throws value_error if there is no such
  // expert, and for a zero expert, which is no glu_expert.
  glu_expert<detail::widened_t<T>> expert(std::size_t n) const {
    glu_expert<detail::widened_t<T>> one;
    one.activation = activation;
    one.limit = limit;
    one.limit_form = limit_form;
    one.latent_down = detail::widened_weight(latent_down);
    one.latent_up = detail::widened_weight(latent_up);
    if (!linear.empty()) one.linear = detail::expert_slice<0>(linear, n);
    one.output = detail::expert_slice<0>(output, n);
    if (down.empty()) {
      one.activated = detail::expert_slice<0>(activated, n);
    } else {
      one.down = detail::expert_slice<1>(down, n);
      one.up = detail::expert_slice<0>(up, n);
    }
    if (!activated_bias.empty()) one.activated_bias = detail::expert_slice<0>(activated_bias, n);
    if (!linear_bias.empty()) one.linear_bias = detail::expert_slice<0>(linear_bias, n);
    if (!output_bias.empty()) one.output_bias = detail::expert_slice<0>(output_bias, n);
    return one;
  }

  static void released(auto& layer, auto&& visit) {
    visit(unrounded({"router", presence::required, "dn"}), layer.router);
    // e is d, or the width of the latent.
    visit(released_name{"W_g", presence::required, "new", "new", "W_down"}, layer.activated);
    visit(released_name{"W_down", presence::optional, "e(nl)", "enl"}, layer.down);
    visit(released_name{"W_up", presence::optional, "nlw"}, layer.up);
    visit(released_name{"W_p", presence::optional, "new"}, layer.linear);
    visit(released_name{"W_o", presence::required, "nwe"}, layer.output);
    visit(released_name{"latent.W_in", presence::optional, "de"}, layer.latent_down);
    visit(released_name{"latent.W_out", presence::optional, "ed"}, layer.latent_up);
    visit(unrounded({"router_bias", presence::optional, "n"}), layer.router_bias);
    visit(unrounded(statistic({"balance", presence::optional, "n"})), layer.balance);
    visit(unrounded({"zero.router", presence::optional, "dz"}), layer.zero_router);
    visit(unrounded(statistic({"zero.balance", presence::optional, "z"})), layer.zero_balance);
    visit(released_name{"b_g", presence::optional, "nw"}, layer.activated_bias);
    visit(released_name{"b_p", presence::optional, "nw"}, layer.linear_bias);
    visit(released_name{"b_o", presence::optional, "ne"}, layer.output_bias);
    visit(released_name{"shared.W_g", presence::optional, "ds"}, layer.shared.activated);
    visit(released_name{"shared.W_p", presence::optional, "ds"}, layer.shared.linear);
    visit(released_name{"shared.W_o", presence::optional, "sd"}, layer.shared.output);
    visit(unrounded({"shared.gate", presence::optional, "d"}), layer.shared_gate);
  }
  static void describe(auto& layer, auto& file) {
    routing::describe(layer.route, file);
    detail::describe_activation(layer.activation, file);
    detail::describe_activation(layer.shared.activation, file, "shared_activation",
                                pointwise::silu);
    // Files say that W_p is not missing but none.
    bool is_gated = !layer.linear.empty();
    if (!is_gated) file.needed("experts");
    file.setting("experts", is_gated, {{"gated", true}, {"ungated", false}}, true);
    detail::expects<value_error>(is_gated == !layer.linear.empty(),
                                 "[moe] gated experts have W_p, and ungated ones have none");
    file.number("scale", layer.scale, 1);
    detail::expect_latent(layer);
    detail::expects<value_error>(
        !layer.latent_down.empty() || layer.router.shape()[0] == layer.output.shape()[2],
        "[moe] the router takes rows of ", layer.router.shape()[0],
        " and the experts make rows of ", layer.output.shape()[2],
        ": experts of a latent have latent_down and latent_up");
    detail::describe_limit(layer.limit, layer.limit_form, file, "limit", "limit_form");
    detail::describe_limit(layer.shared.limit, layer.shared.limit_form, file, "shared_limit",
                           "shared_limit_form");
    file.setting("weighs", layer.weighs_input, {{"output", false}, {"input", true}}, false);
  }

 private:
  // The experts that have weights.
  std::size_t experts() const { return output.shape()[0]; }

  // [n + z].
  auto balances() const {
    detail::expects<value_error>(
        zero_balance.empty() == (zero_router.empty() || balance.empty()),
        "[moe] zero experts have a balance where the other experts have one");
    return detail::appended_if(!zero_balance.empty(), balance, zero_balance);
  }

  // [t, n + z] -> [t, n], [t, z].
  auto of_weights(const operand_of<2> auto& a) const {
    return detail::own_coefficients(!zero_router.empty(), a, experts());
  }
  auto of_zero_experts(const operand_of<2> auto& a) const {
    return detail::columns_if(!zero_router.empty(), a, experts(),
                              zero_router.empty() ? 0 : zero_router.shape()[1]);
  }

  // [t, d] -> [t, d]: what the chosen experts take.
  auto latent(const operand_of<2> auto& x) const {
    detail::expect_latent(*this);
    return detail::projected(x, latent_down);
  }

  // [t, d] -> [t, n, w]: x W_g.
  auto preactivations(const operand_of<2> auto& x) const {
    return choose(down.empty(), einsum<"td,ndw->tnw">(x, activated),
                  einsum<"td,dnl,nlw->tnw">(x, down, up));
  }

  // [t, d], [t, n] -> [t, n, w]: the hidden units of a x, but for the factor a of the linear part,
  // which decoded multiplies: (act(a x W_g) * (x W_p)) a W_o.
  auto hidden_of_weighed(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    detail::expects<value_error>(
        !weighs_input || (limit == 0 && activated_bias.empty() && linear_bias.empty()),
        "[moe] an input that is weighed goes to experts without biases and without a limit");
    const auto v = latent(x);
    const auto g = einsum<"tn,tnw->tnw">(of_weights(a), preactivations(v));
    return multiply_if(!linear.empty(), apply(activation, g), einsum<"td,ndw->tnw">(v, linear));
  }

  auto gated_shared(const operand_of<2> auto& x) const {
    return einsum<"t,td->td">(sigmoid(einsum<"td,d->t">(x, shared_gate)), shared(x));
  }
};

}  // namespace fmoe
