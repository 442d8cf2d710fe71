// SPDX-License-Identifier: MIT
// muMoE, the multilinear mixture of experts (Oldfield et al. 2024): y = sum over n of a_n W_n' z
// with a = phi(norm(x G)), for any number of levels of experts (Eq. 15), and the block of two such
// layers that replaces an MLP (Sec. 4.3).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
    return choose(empty(), x, layer_norm(x) * weight + bias);
  }

  static void released(auto& norm, auto&& visit) {
    visit(released_name{"weight", presence::optional, "i"}, norm.weight);
    visit(released_name{"bias", presence::optional, "i"}, norm.bias);
  }
};

}  // namespace fmoe

namespace fmoe::detail {

// True if the experts have one row more than their input has columns. Throws shape_error if they
// have another number of rows.
inline bool has_bias(extent rows, extent columns) {
  expects<shape_error>(rows == columns || rows == columns + 1, "[mumoe] 'i' is ", rows,
                       " in the experts, and their input has ", columns, " columns");
  return rows != columns;
}

// Returns numbers as the metadata list them: "4,5".
inline std::string listed(std::span<const extent> numbers) {
  std::string text;
  for (const extent n : numbers) text.append(text.empty() ? "" : ",").append(std::to_string(n));
  return text;
}

// The facts that the tensors of a layer or block tell about it.
struct mumoe_facts {
  std::string_view kind;
  std::vector<extent> experts;  // of each level
  std::vector<extent> ranks;
  bool input_layer_norm;
};

// Returns the facts by their keys in the metadata.
inline std::vector<std::pair<const char*, std::string>> texts_of(const mumoe_facts& f) {
  return {{"kind", std::string(f.kind)},
          {"levels", std::to_string(f.experts.size())},
          {"experts", listed(f.experts)},
          {"ranks", listed(f.ranks)},
          {"input_layer_norm", f.input_layer_norm ? "1" : "0"}};
}

mumoe_facts facts_of(const auto& layer, const auto& experts) {
  return {experts.kind, layer.gate.experts(), experts.ranks(), !layer.input_norm.empty()};
}

// The settings and facts of layers and blocks in the metadata.
void describe_mumoe(const mumoe_facts& facts, auto& gate, auto& file) {
  for (const auto& [key, text] : texts_of(facts)) file.fact(key, text);
  gate.describe(gate, file);
}

// Returns what the experts make of z, which has `width` columns, and coefficients: make(experts'
// input, a...). If the experts have one row more, their bias, a 1 is appended to z.
template <class Coefficients>
auto made_of(const auto& experts, const operand auto& z, extent width, const Coefficients& a,
             const auto& make) {
  const auto input = choose(experts.inputs() == width + 1, append_one(z), z);
  return std::apply([&](const auto&... level) { return make(input, level...); }, a);
}

// Returns the mixture of the experts.
auto mixture(const auto& experts, const operand auto& z, extent width, const auto& a) {
  return made_of(experts, z, width, a, experts);
}

// Returns the coefficients of each level, as a tuple: these, or those of x if there are none.
auto coefficients_of(const auto& gate, const operand auto& x, const auto&... a) {
  if constexpr (sizeof...(a) == 0) return gate(x);
  else return std::tuple{as_expression(a)...};
}

// [t, n]: |a_tn W_n' z_t|_2 for the experts n of one level. The einsum is that of the mixture, but
// keeps n. CP takes N R O multiply-adds for it, TR R1 R2 (R3 + N) O, Tucker N R_N O and dense
// N I O. The Gram matrix of the factors would take R instead of O, and lose half of the digits
// where terms cancel.
template <extent Level, class Experts>
auto mixture_norms(const Experts& experts, const operand auto& z, extent width, const auto& a) {
  constexpr subscripts kept = of_each_expert<typename Experts::labels, Level>;
  return made_of(experts, z, width, a, [&](const auto&... x) {
    return norm(row_norm::l2, experts.template contracted<kept>(x...));
  });
}

}  // namespace fmoe::detail

namespace fmoe {

// Experts is cp_experts, tr_experts, tucker_experts or dense_experts.
template <class Experts>
struct mumoe {
  using T = typename Experts::scalar;
  static constexpr std::size_t levels = Experts::levels;

  expert_gate<Experts::levels, T> gate;
  affine_layer_norm<T> input_norm;  // normalises the input of the experts; the gate reads x itself
  Experts experts;                  // I input rows, or I + 1: the last one is the bias

  // [t, i] -> [t, n]: a of one level.
  template <std::size_t Level = 0>
  auto coefficients(const operand auto& x) const {
    return gate.template coefficients<Level>(x);
  }

  // [t, i], and [t, n] for each level -> [t, o]: the output of x with these coefficients.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto&... a) const {
    return detail::mixture(experts, input_norm(x), gate.inputs(), std::tuple{as_expression(a)...});
  }

  // [t, i] -> [t, n]: |a_tn W_n' z_t|_2, the norm of each expert's contribution to a row. In a
  // hierarchy it is that of all experts below expert n of one level, which ablated<Level> removes.
  // Coefficients [t, n] of each level may follow x; otherwise they are those of x.
  template <std::size_t Level = 0>
  auto contribution_norms(const operand_of<2> auto& x, const operand_of<2> auto&... a) const
    requires(sizeof...(a) == 0 || sizeof...(a) == levels)
  {
    return detail::mixture_norms<Level>(experts, input_norm(x), gate.inputs(),
                                        detail::coefficients_of(gate, x, a...));
  }

  // [t, i] -> [t, o].
  auto operator()(const operand_of<2> auto& x) const {
    return detail::mixture(experts, input_norm(x), gate.inputs(), gate(x));
  }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // Returns W_n [i, o] of the expert with these indices, one for each level; with a bias it has one
  // row more. Throws value_error if there is no such expert.
  auto expert(const auto&... n) const { return experts.expert(n...); }

  static void released(auto& layer, auto&& visit) {
    layer.gate.released(layer.gate, visit);
    layer.input_norm.released(layer.input_norm, detail::released_within("input_ln.", visit));
    layer.experts.released(layer.experts, detail::released_within("MuMoE.", visit));
  }
  static void describe(auto& layer, auto& file) {
    detail::describe_mumoe(detail::facts_of(layer, layer.experts), layer.gate, file);
    file.fact("bias", detail::has_bias(layer.experts.inputs(), layer.gate.inputs()) ? "1" : "0");
    file.fact("block", "0");
  }
};

// y = second(GELU(first(x; a)); a): both layers share a gate; GELU is in its erf form.
template <class Experts>
struct mumoe_block {
  using T = typename Experts::scalar;
  static constexpr std::size_t levels = Experts::levels;

  expert_gate<Experts::levels, T> gate;
  affine_layer_norm<T> input_norm;  // before the first layer; the gate sees x itself
  // Each layer has matrices of the experts of its own: first.expert(n...) and second.expert(n...).
  Experts first;   // I or I + 1 input rows, H outputs
  Experts second;  // H or H + 1 input rows

  // [t, i] -> [t, n]: a of one level.
  template <std::size_t Level = 0>
  auto coefficients(const operand auto& x) const {
    return gate.template coefficients<Level>(x);
  }

  // [t, i] -> [t, h]: after GELU.
  auto hidden(const operand auto& x) const { return activated(x, gate(x)); }

  // [t, h], and [t, n] for each level -> [t, o]: the second layer.
  auto decoded(const operand_of<2> auto& z, const operand_of<2> auto&... a) const {
    return detail::mixture(second, z, first.outputs(), std::tuple{as_expression(a)...});
  }

  // [t, i], and [t, n] for each level -> [t, o]: the output of x with these coefficients.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto&... a) const {
    return decoded(activated(x, std::tuple{as_expression(a)...}), a...);
  }

  // [t, i] -> [t, n]: |a_tn W_n' z_t|_2, where W_n is of the second layer and z the hidden units of
  // all experts: the norm of each expert's contribution to a row, as in mumoe.
  template <std::size_t Level = 0>
  auto contribution_norms(const operand_of<2> auto& x, const operand_of<2> auto&... given) const
    requires(sizeof...(given) == 0 || sizeof...(given) == levels)
  {
    const auto a = detail::coefficients_of(gate, x, given...);
    return detail::mixture_norms<Level>(second, activated(x, a), first.outputs(), a);
  }

  // [t, i] -> [t, o].
  auto operator()(const operand_of<2> auto& x) const {
    return std::apply([&](const auto&... a) { return mixed(x, a...); }, gate(x));
  }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  static void released(auto& layer, auto&& visit) {
    layer.gate.released(layer.gate, visit);
    layer.input_norm.released(layer.input_norm, detail::released_within("input_ln.", visit));
    layer.first.released(layer.first, detail::released_within("MuMoE.", visit));
    layer.second.released(layer.second,
                          detail::released_within("MuMoE2.", visit, detail::expert_labels));
  }
  static void describe(auto& layer, auto& file) {
    const bool biased = detail::has_bias(layer.first.inputs(), layer.gate.inputs());
    detail::expects<shape_error>(
        biased == detail::has_bias(layer.second.inputs(), layer.first.outputs()),
        "[mumoe] only one layer of the block has a bias");
    detail::describe_mumoe(detail::facts_of(layer, layer.first), layer.gate, file);
    file.fact("bias", biased ? "1" : "0");
    file.fact("block", "1");
  }

 private:
  auto activated(const operand auto& x, const auto& a) const {
    return gelu(detail::mixture(first, input_norm(x), gate.inputs(), a));
  }
};

// The layer of each factorization.
template <std::size_t Levels = 1, class T = float>
using cp_mumoe = mumoe<cp_experts<Levels, T>>;
template <std::size_t Levels = 1, class T = float>
using tr_mumoe = mumoe<tr_experts<Levels, T>>;
template <std::size_t Levels = 1, class T = float>
using tucker_mumoe = mumoe<tucker_experts<Levels, T>>;
template <std::size_t Levels = 1, class T = float>
using dense_mumoe = mumoe<dense_experts<Levels, T>>;

// The block of each factorization.
template <std::size_t Levels = 1, class T = float>
using cp_mumoe_block = mumoe_block<cp_experts<Levels, T>>;
template <std::size_t Levels = 1, class T = float>
using tr_mumoe_block = mumoe_block<tr_experts<Levels, T>>;
template <std::size_t Levels = 1, class T = float>
using tucker_mumoe_block = mumoe_block<tucker_experts<Levels, T>>;
template <std::size_t Levels = 1, class T = float>
using dense_mumoe_block = mumoe_block<dense_experts<Levels, T>>;

}  // namespace fmoe
