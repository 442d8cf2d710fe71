// SPDX-License-Identifier: MIT
// MxD, a mixture of decoders (Oldfield et al. 2025): z = act(x E + b_E), in the GLU form times x V
// + b_V; a = TopK(ReLU(x G + b_G)); y = (a C) * (z D) + b, since expert n decodes with W_n = D
// diag(c_n).
#pragma once

#include <fmoe/arrays/released.hpp>
#include <fmoe/layers/expert_slice.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe {

// Labels: t token, i input, h hidden unit, n expert, o output. Empty biases, `linear` and `skip`
// are left out.
template <class T = float>
struct mxd {
  parameter<T, 2> encoder;       // i h
  parameter<T, 1> encoder_bias;  // h
  parameter<T, 2> linear;        // i h, the branch of the GLU without activation
  parameter<T, 1> linear_bias;   // h
  parameter<T, 2> gate;          // i n
  parameter<T, 1> gate_bias;     // n
  parameter<T, 2> scales;        // n o, row n is c_n
  parameter<T, 2> decoder;       // h o
  parameter<T, 2> skip;          // i o
  parameter<T, 1> bias;          // o
  std::size_t active = 32;       // K, experts for each token; `all` keeps all positive coefficients
  pointwise activation = pointwise::gelu;

  // [t, i] -> [t, h]: z.
  auto hidden(const operand_of<2> auto& x) const {
    const auto z = apply(activation, add_bias(einsum<"ti,ih->th">(x, encoder), encoder_bias));
    return multiply_if(!linear.empty(), z, add_bias(einsum<"ti,ih->th">(x, linear), linear_bias));
  }

  // [t, i] -> [t, n]: what the experts are chosen by.
  auto scores(const operand_of<2> auto& x) const {
    return add_bias(einsum<"ti,in->tn">(x, gate), gate_bias);
  }

  // [t, i] -> [t, n]: the coefficients a of the experts. Throws value_error for K > N.
  auto coefficients(const operand_of<2> auto& x) const { return top_k(relu(scores(x)), active); }

  // [t, h], [t, n] -> [t, o]: (a C) * (z D) + b, without the skip.
  auto decoded(const operand_of<2> auto& z, const operand_of<2> auto& a) const {
    return add_bias(einsum<"tn,no,th,ho->to">(a, scales, z, decoder), bias);
  }

  // [t, i], [t, n] -> [t, o]: the output of x with these coefficients.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    return add_if(!skip.empty(), decoded(hidden(x), a), einsum<"ti,io->to">(x, skip));
  }

  // [t, i] -> [t, o].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // Returns W_n = D diag(c_n) [h, o], the decoder of one expert (Lemma 1). Throws value_error if
  // there is no such expert.
  auto expert(std::size_t n) const { return decoder * detail::expert_slice<0>(scales, n); }

  // [t, i] -> [t, n]: |a_tn W_n' z_t|_2, the norm of each expert's contribution to a row, which is
  // a_tn c_n * (z_t D).
  auto contribution_norms(const operand_of<2> auto& x) const {
    return contribution_norms(x, coefficients(x));
  }
  auto contribution_norms(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    const auto zD = einsum<"th,ho->to">(hidden(x), decoder);
    return abs(a) * sqrt(einsum<"to,no->tn">(zD * zD, scales * scales));
  }

  static void released(auto& layer, auto&& visit) {
    visit(released_name{"W_enc", presence::required, "ih"}, layer.encoder);
    visit(released_name{"b_enc", presence::optional, "h"}, layer.encoder_bias);
    visit(released_name{"W_glu.weight", presence::optional, "hi", "ih"}, layer.linear);
    visit(released_name{"W_glu.bias", presence::optional, "h"}, layer.linear_bias);
    visit(released_name{"gate", presence::required, "ni", "in"}, layer.gate);
    visit(released_name{"gate_bias", presence::optional, "n"}, layer.gate_bias);
    visit(released_name{"W_cond", presence::required, "on", "no"}, layer.scales);
    visit(released_name{"W_dec", presence::required, "ho"}, layer.decoder);
    visit(released_name{"W_skip.weight", presence::optional, "oi", "io"}, layer.skip);
    visit(released_name{"b_dec_out", presence::optional, "o"}, layer.bias);
  }
  static constexpr std::array released_kinds{
      released_kind{"mxd_glu", "mxd", "W_glu.weight"},
      released_kind{"mxd_mlp", "mxd", {}, {"W_glu.weight", "W_glu.bias"}},
  };
  static constexpr std::array released_unused{std::string_view("b_dec")};
  // It is that of the MLP which the layer replaces.
  static void describe(auto& /*layer*/, auto& file) { file.needed("activation"); }
};

}  // namespace fmoe
