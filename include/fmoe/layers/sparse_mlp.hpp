// SPDX-License-Identifier: MIT
// The sparse MLPs that the MxD paper compares with (Oldfield et al. 2025): transcoder, skip
// transcoder and sparse autoencoder, with the units of published dictionaries: ReLU, TopK (Gao et
// al. 2024), JumpReLU (Rajamanoharan et al. 2024b), gated (Rajamanoharan et al. 2024a), TopK of
// absolute values and the greatest unit of each group (eai-sparsify's groupmax).
#pragma once

#include <cmath>
#include <cstdint>

#include <fmoe/arrays/released.hpp>
#include <fmoe/layers/expert_slice.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe {

// How a dictionary divides the rows of x before it encodes them, by the names of SAELens.
enum class row_scaling : std::uint8_t {
  none,
  constant_norm,  // x / s with s = |x|_2 / sqrt(d)
  layer_norm,     // (x - mean) / (s + 1e-5) with s = |x - mean|_2 / sqrt(d - 1)
};

// A transcoder: z = TopK(act(x E + b_E)) over signed values, y = z D + b. With `skip` it is a skip
// transcoder. With `input_bias`, which is subtracted from x and added to y, it is a sparse
// autoencoder. What is empty is left out. What decides which units are active is in the type of the
// layer's arithmetic, as are the numbers that gated units are made with.
template <class T = float>
struct sparse_mlp {
  using exact = detail::arithmetic_t<T>;

  parameter<T, 2> encoder;       // i h
  parameter<T, 1> encoder_bias;  // h
  parameter<T, 2> decoder;       // h o
  parameter<T, 2> skip;          // i o
  parameter<T, 1> bias;          // o
  parameter<T, 1> input_bias;    // i, which equals o
  std::size_t active = 32;       // K, hidden units for each token; `all` keeps all
  pointwise activation = pointwise::relu;
  parameter<exact, 1> threshold = {};        // h: a JumpReLU's; at it or below it a unit is 0
  parameter<exact, 1> gate_bias = {};        // h: a unit is 0 unless (x - b) E + gate_bias > 0
  parameter<exact, 1> magnitude_scale = {};  // h: its logarithm, r of act((x - b) E exp(r) + b_m)
  parameter<exact, 1> magnitude_bias = {};   // h: b_m
  bool of_absolute_values = false;  // keeps the K greatest |p|, with their signs, without act
  bool of_groups = false;           // keeps the greatest unit of each of K groups of neighbours
  bool in_decoder_norms = false;    // units are multiplied with |d_h|_2, and D has rows of norm 1
  row_scaling scaling = row_scaling::none;
  bool scales_back = true;  // multiplies y with s and adds the mean, where rows of x are divided

  // [t, i] -> [t, h]: x E + b_E; for the autoencoder (x - input_bias) E + b_E. The rows of x are
  // divided first.
  auto preactivations(const operand_of<2> auto& x) const {
    const auto rows = choose(scaling == row_scaling::none, x, divided(x));
    const auto centred = add_if(!input_bias.empty(), rows, -input_bias);
    return add_bias(einsum<"ti,ih->th">(centred, encoder), encoder_bias);
  }

  // [t, i] -> [t, h]: z, the coefficients of the rows of the decoder.
  auto coefficients(const operand_of<2> auto& x) const {
    const auto p = preactivations(x);
    const auto magnitudes =
        add_bias(multiply_if(!magnitude_scale.empty(), p, exp(as_expression(magnitude_scale))),
                 magnitude_bias);
    const auto units = multiply_if(in_decoder_norms, magnitudes, norm(row_norm::l2, decoder));
    const auto acted = choose(of_absolute_values, units, apply(activation, units));
    const auto jumped =
        choose(jumps(), detail::raised_above(relu(units), threshold),
               zero_if(!threshold.empty(), acted, detail::at_least_0(threshold - units)));
    const auto z = zero_if(!gate_bias.empty(), jumped, detail::at_least_0(-(p + gate_bias)));
    const auto greatest =
        choose(of_absolute_values, top_k(z, abs(z), active),
               choose(of_groups, top_k(z, group_max(z, active), active), top_k(z, active)));
    return choose(keeps_few(), nonzeros(z), greatest);
  }

  // [t, i], [t, h] -> [t, o]: the output of x with this z.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto& z) const {
    const auto of_units = einsum<"th,ho->to">(of_unit_rows(z), decoder);
    const auto y = add_bias(add_bias(of_units, bias), input_bias);
    const auto scaled_back = add_if(is_centred(), einsum<"to,t->to">(y, row_scales(x)),
                                    repeat(mean(x), decoder.empty() ? 0 : decoder.shape()[1]));
    return add_if(!skip.empty(), choose(is_scaled_back(), scaled_back, y),
                  einsum<"ti,io->to">(x, skip));
  }

  // [t, i] -> [t, o].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // Returns row n of the decoder [o], which hidden unit n writes; of norm 1 if units are multiplied
  // with its norm. Throws value_error if there is no such unit.
  auto expert(std::size_t n) const {
    const auto row = as_expression(detail::expert_slice<0>(decoder, n));
    return choose(in_decoder_norms, row * (1.0 / max(norm(row_norm::l2, row), least_norm)), row);
  }

  // [t, i] -> [t, h]: |z_th d_h|_2, the norm of each unit's contribution to a row.
  auto contribution_norms(const operand_of<2> auto& x) const {
    return contribution_norms(x, coefficients(x));
  }
  auto contribution_norms(const operand_of<2> auto& x, const operand_of<2> auto& z) const {
    const auto norms = abs(of_unit_rows(z)) * norm(row_norm::l2, decoder);
    return choose(is_scaled_back(), einsum<"th,t->th">(norms, row_scales(x)), norms);
  }

  static void released(auto& layer, auto&& visit) {
    visit(released_name{"W_enc", presence::required, "ih"}, layer.encoder);
    visit(released_name{"b_enc", presence::optional, "h"}, layer.encoder_bias);
    visit(released_name{"W_dec", presence::required, "ho"}, layer.decoder);
    visit(released_name{"W_skip.weight", presence::optional, "oi", "io"}, layer.skip);
    visit(released_name{"b_dec_out", presence::optional, "o"}, layer.bias);
    visit(released_name{"b_dec", presence::optional, "i", "i", "b_dec_out"}, layer.input_bias);
    // Where a unit becomes active there is no gradient.
    visit(unrounded(statistic({"threshold", presence::optional, "h"})), layer.threshold);
    visit(unrounded(statistic({"b_gate", presence::optional, "h"})), layer.gate_bias);
    visit(unrounded({"r_mag", presence::optional, "h"}), layer.magnitude_scale);
    visit(unrounded({"b_mag", presence::optional, "h"}), layer.magnitude_bias);
  }
  static constexpr std::array released_kinds{
      released_kind{"sae", {}, "b_dec", {"b_dec_out", "gate"}},
      released_kind{"skip_transcoder", {}, "W_skip.weight", {"gate"}},
      released_kind{"transcoder", {}, {}, {"gate"}},
  };
  // The activation of an autoencoder is ReLU; a transcoder may have that of the network it
  // replaces. The other settings have the names of SAELens where it has them.
  static void describe(auto& layer, auto& file) {
    if (layer.input_bias.empty()) file.needed("activation");
    if (!layer.threshold.empty() && !layer.input_bias.empty()) file.needed("apply_b_dec_to_input");
    if (!layer.threshold.empty())
      file.fact("apply_b_dec_to_input", layer.input_bias.empty() ? "false" : "true");
    file.setting("abs_topk", layer.of_absolute_values, {{"false", false}, {"true", true}}, false);
    file.setting("groupmax", layer.of_groups, {{"false", false}, {"true", true}}, false);
    file.setting("rescale_acts_by_decoder_norm", layer.in_decoder_norms,
                 {{"false", false}, {"true", true}}, false);
    file.setting("normalize_activations", layer.scaling,
                 {{"none", row_scaling::none},
                  {"constant_norm_rescale", row_scaling::constant_norm},
                  {"layer_norm", row_scaling::layer_norm}},
                 row_scaling::none);
    file.setting("denormalize_output", layer.scales_back, {{"false", false}, {"true", true}}, true);
  }
  static constexpr std::array released_unused{std::string_view("b_dec")};  // of a transcoder

 private:
  static constexpr double least_norm = 1e-8;  // of a row of the decoder, by which units are divided

  // True if a threshold or a gate alone says which units are 0. They are most of them, so that y
  // reads the decoder's rows of the others.
  bool keeps_few() const { return active == all && !(threshold.empty() && gate_bias.empty()); }
  // True if what is above its threshold stays: act is ReLU.
  bool jumps() const {
    return !threshold.empty() && activation == pointwise::relu && !of_absolute_values;
  }
  bool is_centred() const { return scaling == row_scaling::layer_norm; }
  bool is_scaled_back() const { return scaling != row_scaling::none && scales_back; }

  // [t, i] -> [t, i]: x, without the mean of each row where that is subtracted.
  auto centred(const operand_of<2> auto& x) const {
    return add_if(is_centred(), x, -repeat(mean(x), inputs()));
  }
  // [t, i] -> [t]: s.
  auto row_scales(const operand_of<2> auto& x) const {
    const auto freedom = static_cast<double>(inputs()) - (is_centred() ? 1 : 0);
    return norm(row_norm::l2, centred(x)) / std::sqrt(freedom);
  }
  // [t, i] -> [t, i].
  auto divided(const operand_of<2> auto& x) const {
    const double epsilon = is_centred() ? 1e-5 : 0;
    return einsum<"ti,t->ti">(centred(x), 1.0 / (row_scales(x) + epsilon));
  }
  std::size_t inputs() const { return encoder.empty() ? 0 : encoder.shape()[0]; }

  // [t, h] -> [t, h]: z for rows of the decoder as they are.
  auto of_unit_rows(const operand_of<2> auto& z) const {
    return multiply_if(in_decoder_norms, z, 1.0 / max(norm(row_norm::l2, decoder), least_norm));
  }
};

}  // namespace fmoe
