// SPDX-License-Identifier: MIT
// muMoE, the multilinear mixture of experts (Oldfield et al. 2024): y = sum over n of a_n W_n' z
// with a = phi(norm(x G)), for any number of levels of experts (Eq. 15), and the block of two such
// layers that replaces an MLP (Sec. 4.3).
#pragma once

#include <fmoe/layers/expert_gate.hpp>
#include <fmoe/layers/experts.hpp>

namespace fmoe {

// (x - mean) / sqrt(variance + 1e-5) * weight + bias; if both are empty, x itself.
template <class T = float>
struct affine_layer_norm {
  parameter<T, 1> weight;  // i
  parameter<T, 1> bias;    // i

  bool empty() const { return weight.empty() && bias.empty(); }

  auto operator()(const operand auto& x) const {
    return erased(choose(empty(), x, layer_norm(x) * weight + bias));
  }

  static void released(auto& norm, auto&& visit) {
    visit(released_tensor{"weight", "i", "i", presence::optional}, norm.weight);
    visit(released_tensor{"bias", "i", "i", presence::optional}, norm.bias);
  }
};

// True if the experts of `width` inputs have one row more. Throws shape_error if they have another
// number of rows.
template <class Experts>
bool has_bias(const Experts& experts, extent width) {
  expects<shape_error>(experts.inputs() == width || experts.inputs() == width + 1,
                       "[mumoe] 'i' is ", experts.inputs(), " in the experts, and their input has ",
                       width, " columns");
  return experts.inputs() != width;
}

// The settings and facts of layers and blocks in the metadata.
void describe_mumoe(auto& layer, const auto& experts, auto& file) {
  const auto list = [](const auto& numbers) {
    std::string text;
    for (const extent n : numbers) {
      if (!text.empty()) text += ',';
      text += std::to_string(n);
    }
    return text;
  };
  std::vector<extent> counts;
  for (const auto& g : layer.gate.projections) counts.push_back(g.shape()[1]);
  file.fact("kind", std::string(experts.kind));
  file.fact("levels", std::to_string(experts.levels));
  file.fact("experts", list(counts));
  file.fact("ranks", list(experts.ranks()));
  file.fact("input_layer_norm", layer.input_norm.empty() ? "0" : "1");
  layer.gate.describe(layer.gate, file);
}

// Returns the mixture of the experts for z, which has `width` columns. If the experts have one row
// more, their bias, a 1 is appended to z.
template <class Experts, class Coefficients>
auto mixture(const Experts& experts, const operand auto& z, extent width, const Coefficients& a) {
  const auto input = erased(choose(experts.inputs() == width + 1, append_one(z), z));
  return erased(std::apply([&](const auto&... level) { return experts(input, level...); }, a));
}

// Experts is cp_experts, tr_experts, tucker_experts or dense_experts.
template <class Experts>
struct mumoe {
  using T = typename Experts::scalar;
  static constexpr extent levels = Experts::levels;

  expert_gate<Experts::levels, T> gate;
  affine_layer_norm<T> input_norm;  // normalises the input of the experts; the gate reads x itself
  Experts experts;                  // I input rows, or I + 1: the last one is the bias

  // [t, i] -> [t, n]: a of one level.
  template <extent Level = 0>
  auto coefficients(const operand auto& x) const {
    return gate.template coefficients<Level>(x);
  }

  // [t, i], and [t, n] for each level -> [t, o]: the output of x with these coefficients.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto&... a) const {
    return mixture(experts, input_norm(x), gate.inputs(), std::tuple{as_expression(a)...});
  }

  // [t, i] -> [t, o].
  auto operator()(const operand_of<2> auto& x) const {
    return mixture(experts, input_norm(x), gate.inputs(), gate(x));
  }
  auto operator()(const auto&... x) const { return not_rows(x...); }

  static void released(auto& layer, auto&& visit) {
    layer.gate.released(layer.gate, visit);
    layer.input_norm.released(layer.input_norm, released_within("input_ln.", visit));
    layer.experts.released(layer.experts, released_within("MuMoE.", visit));
  }
  static void describe(auto& layer, auto& file) {
    describe_mumoe(layer, layer.experts, file);
    file.fact("bias", has_bias(layer.experts, layer.gate.inputs()) ? "1" : "0");
    file.fact("block", "0");
  }
};

// y = second(GELU(first(x; a)); a): both layers share a gate; GELU is in its erf form.
template <class Experts>
struct mumoe_block {
  using T = typename Experts::scalar;
  static constexpr extent levels = Experts::levels;

  expert_gate<Experts::levels, T> gate;
  affine_layer_norm<T> input_norm;  // before the first layer; the gate sees x itself
  Experts first;                    // I or I + 1 input rows, H outputs
  Experts second;                   // H or H + 1 input rows

  // [t, i] -> [t, n]: a of one level.
  template <extent Level = 0>
  auto coefficients(const operand auto& x) const {
    return gate.template coefficients<Level>(x);
  }

  // [t, i] -> [t, h]: after GELU.
  auto hidden(const operand auto& x) const { return activated(x, gate(x)); }

  // [t, h], and [t, n] for each level -> [t, o]: the second layer.
  auto decoded(const operand_of<2> auto& z, const operand_of<2> auto&... a) const {
    return mixture(second, z, first.outputs(), std::tuple{as_expression(a)...});
  }

  // [t, i], and [t, n] for each level -> [t, o]: the output of x with these coefficients.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto&... a) const {
    return decoded(activated(x, std::tuple{as_expression(a)...}), a...);
  }

  // [t, i] -> [t, o].
  auto operator()(const operand_of<2> auto& x) const {
    return std::apply([&](const auto&... a) { return mixed(x, a...); }, gate(x));
  }
  auto operator()(const auto&... x) const { return not_rows(x...); }

  static void released(auto& layer, auto&& visit) {
    layer.gate.released(layer.gate, visit);
    layer.input_norm.released(layer.input_norm, released_within("input_ln.", visit));
    layer.first.released(layer.first, released_within("MuMoE.", visit));
    layer.second.released(layer.second, released_within("MuMoE2.", visit, expert_labels));
  }
  static void describe(auto& layer, auto& file) {
    const bool biased = has_bias(layer.first, layer.gate.inputs());
    expects<shape_error>(biased == has_bias(layer.second, layer.first.outputs()),
                         "[mumoe] only one layer of the block has a bias");
    describe_mumoe(layer, layer.first, file);
    file.fact("bias", biased ? "1" : "0");
    file.fact("block", "1");
  }

 private:
  auto activated(const operand auto& x, const auto& a) const {
    return erased(gelu(mixture(first, input_norm(x), gate.inputs(), a)));
  }
};

template <extent Levels = 1, class T = float>
using cp_mumoe = mumoe<cp_experts<Levels, T>>;
template <extent Levels = 1, class T = float>
using tr_mumoe = mumoe<tr_experts<Levels, T>>;
template <extent Levels = 1, class T = float>
using tucker_mumoe = mumoe<tucker_experts<Levels, T>>;
template <extent Levels = 1, class T = float>
using dense_mumoe = mumoe<dense_experts<Levels, T>>;

template <extent Levels = 1, class T = float>
using cp_mumoe_block = mumoe_block<cp_experts<Levels, T>>;
template <extent Levels = 1, class T = float>
using tr_mumoe_block = mumoe_block<tr_experts<Levels, T>>;
template <extent Levels = 1, class T = float>
using tucker_mumoe_block = mumoe_block<tucker_experts<Levels, T>>;
template <extent Levels = 1, class T = float>
using dense_mumoe_block = mumoe_block<dense_experts<Levels, T>>;

}  // namespace fmoe
