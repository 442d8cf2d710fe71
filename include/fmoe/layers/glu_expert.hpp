// SPDX-License-Identifier: MIT
// One expert of a sparse mixture, a gated linear unit, by itself.
#pragma once

#include <string_view>
#include <utility>

#include <fmoe/run/compile.hpp>

namespace fmoe::detail {

// The setting in the metadata for the activation of an expert.
void describe_activation(auto& activation, auto& file) {
  using name = std::pair<std::string_view, pointwise>;
  file.setting("activation", activation,
               {name{"silu", pointwise::silu},
                {"gelu_tanh", pointwise::gelu_tanh},
                {"gelu", pointwise::gelu},
                {"relu", pointwise::relu}});
}

}  // namespace fmoe::detail

namespace fmoe {

// One expert, (act(x W_g) * (x W_p)) W_o; W_g = W_down W_up if `down` is set.
template <class T = float>
struct glu_expert {
  parameter<T, 2> activated;  // d w, W_g
  parameter<T, 2> down;       // d l
  parameter<T, 2> up;         // l w
  parameter<T, 2> linear;     // d w
  parameter<T, 2> output;     // w d
  pointwise activation = pointwise::silu;

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& x) const {
    const auto preactivation = choose(down.empty(), einsum<"td,dw->tw">(x, activated),
                                      einsum<"td,dl,lw->tw">(x, down, up));
    return einsum<"tw,wd->td">(apply(activation, preactivation) * einsum<"td,dw->tw">(x, linear),
                               output);
  }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }
};

}  // namespace fmoe
