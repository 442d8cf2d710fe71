// SPDX-License-Identifier: MIT
// The sparse MLPs that the MxD paper compares with (Oldfield et al. 2025): transcoder, skip
// transcoder and sparse autoencoder.
#pragma once

#include <fmoe/arrays/released.hpp>
#include <fmoe/layers/expert_slice.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe {

// A transcoder: z = TopK(act(x E + b_E)) over signed values, y = z D + b. With `skip` it is a skip
// transcoder. With `input_bias`, which is subtracted from x and added to y, it is a sparse
// autoencoder.
template <class T = float>
struct sparse_mlp {
  parameter<T, 2> encoder;       // i h
  parameter<T, 1> encoder_bias;  // h
  parameter<T, 2> decoder;       // h o
  parameter<T, 2> skip;          // i o
  parameter<T, 1> bias;          // o
  parameter<T, 1> input_bias;    // i, which equals o
  std::size_t active = 32;       // K, hidden units for each token; `all` keeps all
  pointwise activation = pointwise::relu;

  // [t, i] -> [t, h]: x E + b_E; for the autoencoder (x - input_bias) E + b_E.
  auto preactivations(const operand_of<2> auto& x) const {
    const auto centred = add_if(!input_bias.empty(), x, -input_bias);
    return add_bias(einsum<"ti,ih->th">(centred, encoder), encoder_bias);
  }

  // [t, i] -> [t, h]: z, the coefficients of the rows of the decoder.
  auto coefficients(const operand_of<2> auto& x) const {
    return top_k(apply(activation, preactivations(x)), active);
  }

  // [t, i], [t, h] -> [t, o]: the output of x with this z.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto& z) const {
    const auto y = add_bias(add_bias(einsum<"th,ho->to">(z, decoder), bias), input_bias);
    return add_if(!skip.empty(), y, einsum<"ti,io->to">(x, skip));
  }

  // [t, i] -> [t, o].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // Returns row n of the decoder [o], which hidden unit n writes. Throws value_error if there is no
  // such unit.
  auto expert(std::size_t n) const { return as_expression(detail::expert_slice<0>(decoder, n)); }

  // [t, i] -> [t, h]: |z_th d_h|_2, the norm of each unit's contribution to a row.
  auto contribution_norms(const operand_of<2> auto& x) const {
    return contribution_norms(x, coefficients(x));
  }
  auto contribution_norms(const operand_of<2> auto&, const operand_of<2> auto& z) const {
    return abs(z) * norm(row_norm::l2, decoder);
  }

  static void released(auto& layer, auto&& visit) {
    visit(released_name{"W_enc", presence::required, "ih"}, layer.encoder);
    visit(released_name{"b_enc", presence::optional, "h"}, layer.encoder_bias);
    visit(released_name{"W_dec", presence::required, "ho"}, layer.decoder);
    visit(released_name{"W_skip.weight", presence::optional, "oi", "io"}, layer.skip);
    visit(released_name{"b_dec_out", presence::optional, "o"}, layer.bias);
    visit(released_name{"b_dec", presence::optional, "i", "i", "b_dec_out"}, layer.input_bias);
  }
  static constexpr std::array released_kinds{
      released_kind{"sae", {}, "b_dec", {"b_dec_out", "gate"}},
      released_kind{"skip_transcoder", {}, "W_skip.weight", {"gate"}},
      released_kind{"transcoder", {}, {}, {"gate"}},
  };
  // That of an autoencoder is ReLU; a transcoder may have that of the network it replaces.
  static void describe(auto& layer, auto& file) {
    if (layer.input_bias.empty()) file.needed("activation");
  }
  static constexpr std::array released_unused{std::string_view("b_dec")};  // of a transcoder
};

}  // namespace fmoe
