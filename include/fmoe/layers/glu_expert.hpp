// SPDX-License-Identifier: MIT
// One expert of a sparse mixture, a gated linear unit, by itself.
#pragma once

#include <string_view>
#include <utility>

#include <fmoe/run/compile.hpp>

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

// The hidden units of a gated linear unit, act(g) * p, or act(g) if it has no linear part. With a
// limit L > 0 they are those of gpt-oss, a SwiGLU of clamped numbers: (g' sigmoid(1.702 g')) * (p'
// + 1) with g' = min(g, L) and p' = p within [-L, L].
auto gated(pointwise activation, double limit, bool has_linear, const operand auto& g,
           const operand auto& p) {
  expects<value_error>(has_linear || limit == 0,
                       "[moe] a limit is of gated experts, and these have no linear part");
  const auto most = min(g, limit);
  const auto clamped = most * sigmoid(1.702 * most) * (clamp(p, -limit, limit) + 1);
  return choose(limit == 0, multiply_if(has_linear, apply(activation, g), p), clamped);
}

}  // namespace fmoe::detail

namespace fmoe {

// One expert, (act(x W_g + b_g) * (x W_p + b_p)) W_o + b_o; W_g = W_down W_up if `down` is set, and
// biases may be empty. If `linear` is empty, it is act(x W_g + b_g) W_o + b_o.
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
  double limit = 0;                                       // of the clamped form; 0: none

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& x) const {
    const auto g = choose(down.empty(), einsum<"td,dw->tw">(x, activated),
                          einsum<"td,dl,lw->tw">(x, down, up));
    const auto z = detail::gated(activation, limit, !linear.empty(), add_bias(g, activated_bias),
                                 add_bias(einsum<"td,dw->tw">(x, linear), linear_bias));
    return add_bias(einsum<"tw,wd->td">(z, output), output_bias);
  }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }
};

}  // namespace fmoe
