// SPDX-License-Identifier: MIT
// Cross-layer transcoders (Ameisen et al. 2025, "Circuit Tracing"): units that read the stream at
// one layer of a model and write to the outputs of its MLP and of all MLPs behind it.
#pragma once

#include <fmoe/arrays/released.hpp>
#include <fmoe/layers/expert_slice.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe {

// The units of one layer of a model: z = act(x E + b_E), or with `threshold` x E + b_E where that
// is above it, else 0 (JumpReLU); y_l = z D_l, where l counts the layers from this one on. The bias
// and the skip x S are this layer's, and in y_0 alone, so that the output of a layer of the model
// is the sum of what its own and all earlier units write to it. What is empty is left out.
template <class T = float>
struct cross_layer_transcoder {
  using exact = detail::arithmetic_t<T>;

  parameter<T, 2> encoder;             // i h
  parameter<T, 1> encoder_bias;        // h
  parameter<T, 3> decoder;             // h l o
  parameter<T, 2> skip;                // i o
  parameter<T, 1> bias;                // o
  parameter<exact, 1> threshold = {};  // h: at it or below it a unit is 0
  std::size_t active = all;            // K, hidden units for each token; `all` keeps all
  pointwise activation = pointwise::relu;

  // [t, i] -> [t, h]: z, the coefficients of the units.
  auto coefficients(const operand_of<2> auto& x) const {
    const auto p = add_bias(einsum<"ti,ih->th">(x, encoder), encoder_bias);
    const auto z =
        choose(threshold.empty(), apply(activation, p), detail::raised_above(p, threshold));
    // Most units are below their thresholds: y reads the decoder's rows of the others.
    return choose(!threshold.empty() && active == all, nonzeros(z), top_k(z, active));
  }

  // [t, i], [t, h] -> [t, l, o]: the output of x with this z.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto& z) const {
    const auto of_units = einsum<"th,hlo->tlo">(z, decoder);
    const auto with_bias = add_if(!bias.empty(), of_units, einsum<"l,o->lo">(own_layer(), bias));
    return add_if(!skip.empty(), with_bias,
                  einsum<"l,to->tlo">(own_layer(), einsum<"ti,io->to">(x, skip)));
  }

  // [t, i] -> [t, l, o].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // Returns what unit n writes to each layer [l, o]. Throws value_error if there is no such unit.
  auto expert(std::size_t n) const { return detail::expert_slice<0>(decoder, n, "unit"); }

  // [t, i] -> [t, h]: |z_th D_h|_2, the norm of each unit's contribution to all layers.
  auto contribution_norms(const operand_of<2> auto& x) const {
    return contribution_norms(x, coefficients(x));
  }
  auto contribution_norms(const operand_of<2> auto&, const operand_of<2> auto& z) const {
    return abs(z) * norm(row_norm::l2, norm(row_norm::l2, decoder));
  }

  static void released(auto& layer, auto&& visit) {
    visit(released_name{"W_enc", presence::required, "ih"}, layer.encoder);
    visit(released_name{"b_enc", presence::optional, "h"}, layer.encoder_bias);
    visit(released_name{"W_dec", presence::required, "hlo"}, layer.decoder);
    visit(released_name{"W_skip.weight", presence::optional, "oi", "io"}, layer.skip);
    visit(released_name{"b_dec_out", presence::optional, "o"}, layer.bias);
    visit(unrounded(statistic({"threshold", presence::optional, "h"})), layer.threshold);
  }
  static constexpr std::array released_kinds{
      released_kind{"cross_layer_transcoder", {}, {}, {"gate"}}};
  static void describe(auto& layer, auto& file) {
    if (layer.threshold.empty()) file.needed("activation");
  }

 private:
  // [l]: 1 for the layer whose units these are, 0 for those behind it.
  auto own_layer() const {
    tensor<exact, 1> own({decoder.empty() ? 0 : decoder.shape()[1]});
    if (!decoder.empty()) own(0) = 1;
    return as_expression(own);
  }
};

}  // namespace fmoe
