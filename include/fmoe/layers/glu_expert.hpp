// SPDX-License-Identifier: MIT
// One expert of a sparse mixture, a gated linear unit, by itself.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include <fmoe/run/compile.hpp>

namespace fmoe {

// What a limit L > 0 bounds of the hidden units act(g) * u of a gated linear unit. In each form u'
// is u within [-L, L].
enum class glu_limit : std::uint8_t {
  swiglu_oai,         // (g' sigmoid(1.702 g')) * (u' + 1), g' = min(g, L): gpt-oss, MiniMax-M3
  before_activation,  // act(min(g, L)) * u': GLM-5-Next, Hunyuan 4
  after_activation,   // min(act(g), L) * u': Step-3.5 and 3.7
};

}  // namespace fmoe

namespace fmoe::detail {

// The setting in the metadata for the activation of an expert.
void describe_activation(auto& activation, auto& file, const char* key = "activation",
                         auto... unsaid) {
  using name = std::pair<std::string_view, pointwise>;
  file.setting(key, activation,
               {name{"silu", pointwise::silu},
                {"gelu_tanh", pointwise::gelu_tanh},
                {"gelu", pointwise::gelu},
                {"relu", pointwise::relu},
                {"squared_relu", pointwise::squared_relu},
                {"relu2", pointwise::squared_relu}},
               unsaid...);
}

// [..., d] -> [..., e]: x W of a layer that has W [d, e], else x.
template <operand X, class T>
auto projected(const X& x, const parameter<T, 2>& w) {
  static_assert(expression_t<X>::rank == 2 || expression_t<X>::rank == 3);
  if constexpr (expression_t<X>::rank == 2) return choose(w.empty(), x, einsum<"td,de->te">(x, w));
  else return choose(w.empty(), x, einsum<"tnd,de->tne">(x, w));
}

// Throws value_error if experts of a latent have only one of their projections.
void expect_latent(const auto& layer) {
  expects<value_error>(layer.latent_down.empty() == layer.latent_up.empty(),
                       "[moe] experts of a latent have latent_down and latent_up");
}

// The setting in the metadata for a limit of hidden units, and its form.
void describe_limit(auto& limit, auto& form, auto& file, const char* limit_key,
                    const char* form_key) {
  using name = std::pair<std::string_view, glu_limit>;
  file.number(limit_key, limit, 0);
  file.setting(form_key, form,
               {name{"swiglu_oai", glu_limit::swiglu_oai},
                {"before_activation", glu_limit::before_activation},
                {"after_activation", glu_limit::after_activation}},
               glu_limit::swiglu_oai);
}

// The hidden units of a gated linear unit, act(g) * p, or act(g) if it has no linear part; with a
// limit above 0 those of its form.
auto gated(pointwise activation, double limit, glu_limit form, bool has_linear,
           const operand auto& g, const operand auto& p) {
  expects<value_error>(has_linear || limit == 0,
                       "[moe] a limit is of gated experts, and these have no linear part");
  const auto most = min(g, limit);
  const auto clamped = clamp(p, -limit, limit);
  const bool is_oai = form == glu_limit::swiglu_oai,
             is_before = form == glu_limit::before_activation;
  const auto first = apply(is_before ? pointwise::at_most : activation, g, is_before ? limit : 0);
  const auto both =
      apply(is_before ? activation : pointwise::at_most, first, is_before ? 0 : limit);
  return multiply_if(
      has_linear,
      choose(limit == 0, apply(activation, g), choose(is_oai, most * sigmoid(1.702 * most), both)),
      choose(limit == 0, p, choose(is_oai, clamped + 1, clamped)));
}

}  // namespace fmoe::detail

namespace fmoe {

// One expert, (act(x W_g + b_g) * (x W_p + b_p)) W_o + b_o; W_g = W_down W_up if `down` is set, and
// biases may be empty. If `linear` is empty, it is act(x W_g + b_g) W_o + b_o. One of a latent is
// E(x W_in) W_out, and then d is the width of the latent in the shapes of E.
template <class T = float>
struct glu_expert {
  parameter<T, 2> activated;  // d w, W_g
  parameter<T, 2> down;       // d l
  parameter<T, 2> up;         // l w
  parameter<T, 2> linear;     // d w
  parameter<T, 2> output;     // w d
  pointwise activation = pointwise::silu;
  parameter<T, 1> activated_bias = {}, linear_bias = {};  // w
  parameter<T, 1> output_bias = {};                       // d
  double limit = 0;                                       // of the hidden units; 0: none
  glu_limit limit_form = glu_limit::swiglu_oai;
  parameter<T, 2> latent_down = {}, latent_up = {};  // W_in and W_out

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& input) const {
    detail::expect_latent(*this);
    const auto x = detail::projected(input, latent_down);
    const auto g = choose(down.empty(), einsum<"td,dw->tw">(x, activated),
                          einsum<"td,dl,lw->tw">(x, down, up));
    const auto z =
        detail::gated(activation, limit, limit_form, !linear.empty(), add_bias(g, activated_bias),
                      add_bias(einsum<"td,dw->tw">(x, linear), linear_bias));
    return detail::projected(add_bias(einsum<"tw,wd->td">(z, output), output_bias), latent_up);
  }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }
};

}  // namespace fmoe
