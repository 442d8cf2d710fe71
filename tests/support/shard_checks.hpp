// SPDX-License-Identifier: MIT
// Runs layers that are cut over ranks and compares them with one process. Each rank brings its
// share of the tokens; shares are not equal.
#pragma once

#include <fmoe/distributed.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>

#include "rank_checks.hpp"
#include "same_bits.hpp"

namespace fmoe::test {

// Numbers that repeat, so that many scores are equal.
template <class T, std::size_t Rank>
void fill_with(tensor<T, Rank>& p, const std::array<std::size_t, Rank>& shape, unsigned seed,
               int steps) {
  p = tensor<T, Rank>(shape);
  T* const to = detail::elements_to_write(p);
  unsigned state = 2654435761u * (seed + 1);
  for (std::size_t i = 0; i < p.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    const int k = static_cast<int>((state >> 8) % static_cast<unsigned>(2 * steps + 1)) - steps;
    to[i] = static_cast<T>(k) / static_cast<T>(steps);
  }
}

template <class T = float>
tensor<T, 2> rows(std::size_t tokens, std::size_t width, int steps) {
  tensor<T, 2> x;
  fill_with(x, {tokens, width}, 99, steps);
  return x;
}

// 37 experts, 12 inputs and outputs, 20 hidden units.
template <class T = float>
mxd<T> mixture_of_decoders(int steps, bool with_glu = false) {
  mxd<T> l;
  fill_with(l.encoder, {12, 20}, 1, steps);
  fill_with(l.encoder_bias, {20}, 2, steps);
  if (with_glu) fill_with(l.linear, {12, 20}, 3, steps);
  fill_with(l.gate, {12, 37}, 4, steps);
  fill_with(l.gate_bias, {37}, 5, steps);
  fill_with(l.scales, {37, 12}, 6, steps);
  fill_with(l.decoder, {20, 12}, 7, steps);
  fill_with(l.bias, {12}, 8, steps);
  l.active = 5;
  return l;
}

// 640 experts, of which 32 are selected: on 4 ranks each gives its 18 best at first. Those before
// `begin` and from `end` on have no scores above 0.
inline mxd<> mixture_of_many(std::size_t begin, std::size_t end) {
  mxd<> layer;
  fill_with(layer.encoder, {12, 20}, 1, 1000);
  fill_with(layer.gate, {12, 640}, 2, 1000);
  fill_with(layer.gate_bias, {640}, 3, 1000);
  fill_with(layer.scales, {640, 12}, 4, 1000);
  fill_with(layer.decoder, {20, 12}, 5, 1000);
  for (std::size_t n = 0; n < 640; ++n)
    if (n < begin || n >= end) layer.gate_bias.data()[n] -= 100;
  layer.active = 32;
  return layer;
}

// 4,096 experts, 32 inputs, 64 hidden units, 16 outputs; 8 experts of a token.
inline mxd<> wide_mixture() {
  mxd<> layer;
  fill_with(layer.encoder, {32, 64}, 1, 100);
  fill_with(layer.gate, {32, 4096}, 2, 100);
  fill_with(layer.scales, {4096, 16}, 3, 100);
  fill_with(layer.decoder, {64, 16}, 4, 100);
  layer.active = 8;
  return layer;
}

// The coefficients of an MxD alone, with scores of both signs: many are equal or 0.
struct selection_of_mxd {
  parameter<float, 2> gate;  // i n
  std::size_t active = 5;

  auto operator()(const operand_of<2> auto& x) const {
    return top_k(einsum<"ti,in->tn">(x, gate), active);
  }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"gate", presence::required, "in"}, layer.gate);
  }
};

// Calls the layer with this rank's share of x, and returns the results for all tokens.
template <class Layer>
tensor<float, 2> result_on(communicator& ranks, const sharded<Layer>& layer,
                           const tensor<float, 2>& x, std::size_t calls = 1) {
  const std::size_t tokens = x.shape()[0], P = ranks.size(), width = x.shape()[1];
  const auto begin = [&](std::size_t r) { return detail::begin_of_part(tokens, P, r); };
  const std::size_t first = begin(ranks.rank()), own = begin(ranks.rank() + 1) - first;
  auto forward = compile(layer, detail::divide_up(tokens, P), {.threads = 1});
  const std::size_t outputs = forward.output_shape()[0];
  tensor<float, 2> mine({own, width}), y({own, outputs}), all({tokens, outputs});
  std::copy_n(std::as_const(x).data() + first * width, own * width, mine.data());
  std::vector<std::size_t> counts;
  for (std::size_t r = 0; r < P; ++r) counts.push_back((begin(r + 1) - begin(r)) * outputs);
  for (std::size_t call = 0; call < calls; ++call) forward(mine, y);
  ranks.all_gather(std::span<const float>(y.data(), y.size()), std::span(all.data(), all.size()),
                   counts);
  return all;
}

template <class Layer>
tensor<float, 2> result_alone(const Layer& layer, const tensor<float, 2>& x) {
  return compile(layer, x.shape()[0], {.threads = 1})(x);
}

inline double difference(const tensor<float, 2>& a, const tensor<float, 2>& b) {
  double worst = 0, greatest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(double{a.data()[i]} - double{b.data()[i]}));
    greatest = std::max(greatest, std::abs(double{b.data()[i]}));
  }
  return a.shape() == b.shape() ? worst / greatest : 1;
}

// The results of a layer that is cut along a label agree with those of one process.
template <class Layer>
void check_layer(communicator& ranks, const Layer& layer, char label, const tensor<float, 2>& x,
                 const std::string& name) {
  const auto expected = result_alone(layer, x);
  const double error = difference(result_on(ranks, shard(layer, ranks, label), x, 2), expected);
  require(error <= 4e-6, name + " over '" + label + "' on " + std::to_string(ranks.size()) +
                             " ranks: " + std::to_string(error));
}

// A selection over ranks is that of one process, also where scores are equal, negative or 0.
inline void check_selection(communicator& ranks) {
  for (const std::size_t active : {1u, 5u, 20u, 37u})
    for (const int steps : {1, 2, 50}) {
      selection_of_mxd layer{{}, active};
      fill_with(layer.gate, {6, 37}, 4, steps);
      const auto x = rows(19, 6, steps);
      const std::size_t parts = ranks.size() * (active == 5 ? 2 : 1);
      require(same_bits(result_on(ranks, shard(layer, ranks, 'n', {.parts = parts}), x),
                        result_alone(layer, x)),
              "a selection of " + std::to_string(active));
    }
}

// 16 of 4,300 experts, which 4 ranks screen in parts of 1,075. Each expert has a row of 8 numbers.
// Sums of these are exact, so that no order of them changes a bit.
struct wide_layer {
  parameter<float, 2> gate, table;  // i n, n o

  std::size_t active = 16;

  auto scores(const operand_of<2> auto& x) const {
    return top_k(einsum<"ti,in->tn">(x, gate), active);
  }
  auto operator()(const operand_of<2> auto& x) const {
    return einsum<"tn,no->to">(scores(x), table);
  }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"gate", presence::required, "in"}, layer.gate);
    visit(released_name{"table", presence::required, "no"}, layer.table);
  }
};

inline wide_layer wide_layer_of(int steps, std::size_t inputs = 64) {
  wide_layer layer;
  fill_with(layer.gate, {inputs, 4300}, 4, steps);
  fill_with(layer.table, {4300, 8}, 5, 2);
  return layer;
}

// Stands in the plan.
constexpr const char* bounds_text = "best of each rank after bounds of their scores";

inline void check_wide(communicator& ranks, const wide_layer& layer, const tensor<float, 2>& x,
                       const std::string& what) {
  const auto part = shard(layer, ranks, 'n');
  const std::string plan = compile(part, x.shape()[0], {.threads = 1}).explain();
  require(plan.find(bounds_text) != plan.npos, plan);
  require(same_bits(result_on(ranks, part, x, 2), result_alone(layer, x)), what);
}

inline void check_layers(communicator& ranks) {
  check_selection(ranks);
  const auto x = rows(23, 12, 1000);
  for (const bool with_glu : {false, true})
    for (const char label : {'n', 'h', 'o'})
      check_layer(ranks, mixture_of_decoders(1000, with_glu), label, x, "MxD");
  for (const std::size_t end : {640u, 160u})
    check_layer(ranks, mixture_of_many(0, end), 'n', x, "32 of 640");
  if (ranks.size() > 1 && ranks.size() <= 4)
    check_wide(ranks, wide_layer_of(64), rows(70, 64, 64), "16 of 4,300");
}

}  // namespace fmoe::test
