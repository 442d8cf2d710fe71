// SPDX-License-Identifier: MIT
// MxD, a mixture of decoders (Oldfield et al. 2025): z = act(x E + b_E), in the GLU form times x V
// + b_V; a = TopK(ReLU(x G + b_G)); y = (a C) * (z D) + b, because expert n decodes with W_n = D
// diag(c_n). This header also has the sparse MLPs with which the paper compares: transcoder, skip
// transcoder and sparse autoencoder.
#pragma once

#include <tuple>

#include <fmoe/arrays/released.hpp>
#include <fmoe/arrays/slice.hpp>
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
  extent active = 32;            // K, experts for each token; `all` keeps all positive coefficients
  pointwise activation = pointwise::gelu;

  // [t, i] -> [t, h]: z.
  auto hidden(const operand_of<2> auto& x) const {
    const auto z = apply(activation, add_bias(einsum<"ti,ih->th">(x, encoder), encoder_bias));
    return multiply_if(!linear.empty(), z, add_bias(einsum<"ti,ih->th">(x, linear), linear_bias));
  }

  // [t, i] -> [t, n]: the coefficients a of the experts. Throws value_error for K > N.
  auto coefficients(const operand_of<2> auto& x) const {
    return top_k(relu(add_bias(einsum<"ti,in->tn">(x, gate), gate_bias)), active);
  }

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
  auto operator()(const auto&... x) const { return not_rows(x...); }

  // Returns W_n = D diag(c_n) [h, o], the decoder of one expert (Lemma 1). Throws value_error if
  // there is no such expert.
  auto expert(extent n) const { return decoder * slice<0>(scales, n); }

  // [t, i] -> [t, n]: |a_tn W_n' z_t|_2, the norm of each expert's contribution to a row, which is
  // a_tn c_n * (z_t D).
  auto contribution_norms(const operand_of<2> auto& x) const {
    const auto zD = einsum<"th,ho->to">(hidden(x), decoder);
    return coefficients(x) * sqrt(einsum<"to,no->tn">(zD * zD, scales * scales));
  }

  static auto released() {
    return std::tuple{
        released_name{"W_enc", &mxd::encoder, presence::required, "ih"},
        released_name{"b_enc", &mxd::encoder_bias, presence::optional, "h"},
        released_name{"W_glu.weight", &mxd::linear, presence::optional, "hi", "ih"},
        released_name{"W_glu.bias", &mxd::linear_bias, presence::optional, "h"},
        released_name{"gate", &mxd::gate, presence::required, "ni", "in"},
        released_name{"gate_bias", &mxd::gate_bias, presence::optional, "n"},
        released_name{"W_cond", &mxd::scales, presence::required, "on", "no"},
        released_name{"W_dec", &mxd::decoder, presence::required, "ho"},
        released_name{"W_skip.weight", &mxd::skip, presence::optional, "oi", "io"},
        released_name{"b_dec_out", &mxd::bias, presence::optional, "o"},
    };
  }
  static constexpr std::array released_kinds{
      released_kind{"mxd_glu", "mxd", "W_glu.weight"},
      released_kind{"mxd_mlp", "mxd", {}, {"W_glu.weight", "W_glu.bias"}},
  };
  static constexpr std::array released_unused{std::string_view("b_dec")};
};

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
  extent active = 32;            // K, hidden units for each token; `all` keeps all
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
  auto operator()(const auto&... x) const { return not_rows(x...); }

  // Returns row n of the decoder [o], which hidden unit n writes. Throws value_error if there is no
  // such unit.
  auto expert(extent n) const { return as_expression(slice<0>(decoder, n)); }

  // [t, i] -> [t, h]: |z_th d_h|_2, the norm of each unit's contribution to a row.
  auto contribution_norms(const operand_of<2> auto& x) const {
    const auto z = coefficients(x);
    return sqrt(z * z) * norm(gate::l2_norm, decoder);
  }

  static auto released() {
    return std::tuple{
        released_name{"W_enc", &sparse_mlp::encoder, presence::required, "ih"},
        released_name{"b_enc", &sparse_mlp::encoder_bias, presence::optional, "h"},
        released_name{"W_dec", &sparse_mlp::decoder, presence::required, "ho"},
        released_name{"W_skip.weight", &sparse_mlp::skip, presence::optional, "oi", "io"},
        released_name{"b_dec_out", &sparse_mlp::bias, presence::optional, "o"},
        released_name{"b_dec", &sparse_mlp::input_bias, presence::optional, "i", "i", "b_dec_out"},
    };
  }
  static constexpr std::array released_kinds{
      released_kind{"sae", {}, "b_dec", {"b_dec_out", "gate"}},
      released_kind{"skip_transcoder", {}, "W_skip.weight", {"gate"}},
      released_kind{"transcoder", {}, {}, {"gate"}},
  };
};

}  // namespace fmoe
