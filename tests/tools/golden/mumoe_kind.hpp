// SPDX-License-Identifier: MIT
// Judges layers and blocks of one kind of muMoE's experts. Each kind has a source file of its own,
// because 12 types of layers in float and double take half a minute to compile.
#pragma once

#include <charconv>
#include <functional>
#include <optional>

#include <fmoe/mumoe.hpp>

#include "gradients.hpp"
#include "magnitudes.hpp"
#include "mumoe.hpp"
#include "over_ranks.hpp"
#include "singular_values.hpp"
#include "value_of.hpp"

namespace fmoe::golden {

// The quantities that a case asks for, whatever the type of its layer.
template <class T>
struct quantities {
  named_sizes sizes;
  expr<T, 2> y;
  std::optional<expr<T, 2>> hidden = {};
  std::vector<expr<T, 2>> scores = {}, coefficients = {};  // by level
  std::vector<std::vector<double>> score_magnitudes = {};  // by level and row
  std::function<tensor<T, 2>(extent)> expert = {};  // W_n, n counting row-major over the levels
};

// Returns the largest sum of absolute values in each row of norm(x G).
template <class T>
std::vector<double> score_magnitudes(const tensor<T, 2>& x, const parameter<T, 2>& projection,
                                     const parameter<T, 1>& mean, const parameter<T, 1>& variance,
                                     bool layer_norm) {
  const auto sums = value_of(einsum<"ti,in->tn">(absolute(x), absolute(projection)));
  const auto scores = value_of(einsum<"ti,in->tn">(x, projection));
  const extent experts = sums.shape()[1];
  std::vector<double> result;
  for (extent t = 0; t < sums.shape()[0]; ++t) {
    double centre = 0, spread = 0, most = 0;
    for (extent n = 0; n < experts; ++n)
      centre += static_cast<double>(scores(t, n)) / static_cast<double>(experts);
    for (extent n = 0; n < experts; ++n)
      spread +=
          std::pow(static_cast<double>(scores(t, n)) - centre, 2) / static_cast<double>(experts);
    for (extent n = 0; n < experts; ++n) {
      const bool batch = !mean.empty();
      const double size = sums(t, n) + (batch ? std::abs(static_cast<double>(mean(n))) : 0);
      const double divisor = batch        ? static_cast<double>(variance(n)) + 1e-5
                             : layer_norm ? spread + 1e-5
                                          : 1;
      most = std::max(most, size / std::sqrt(divisor));
    }
    result.push_back(most);
  }
  return result;
}

template <class T>
tensor<double, 2> widened(const tensor<T, 2>& m) {
  tensor<double, 2> r(m.shape());
  std::copy_n(m.data(), m.size(), r.data());
  return r;
}

// Row n of `singular_values` belongs to expert n. The rank counts those above 1e-10 of the largest,
// which only double can tell.
template <class T>
void judge_experts(golden_case& c, report& r, const std::function<tensor<T, 2>(extent)>& expert) {
  const auto names = c.unread();
  for (const std::string& name : names) {
    extent n = 0;
    const char *first = name.data() + std::min<extent>(7, name.size()),
               *last = name.data() + name.size();
    if (!name.starts_with("expert.") || std::from_chars(first, last, n).ptr != last) continue;
    r.compare(name, expert(n), c.rows<double>(name));
  }
  const auto expected =
      c.has("singular_values") ? std::optional(c.rows<double>("singular_values")) : std::nullopt;
  const auto ranks = c.has("rank") ? std::optional(c.integers("rank")) : std::nullopt;
  const extent count = expected ? expected->shape()[0] : ranks ? ranks->size() : 0;
  if (expected && ranks && ranks->size() != count)
    throw not_understood("rank and singular_values of other numbers of experts");
  tensor<T, 2> found(expected ? expected->shape() : std::array<extent, 2>{});
  for (extent n = 0; n < count; ++n) {
    const auto values = singular_values(widened(expert(n)));
    if (expected && values.size() != found.shape()[1])
      throw not_understood("singular values of another number");
    for (extent k = 0; expected && k < values.size(); ++k) found(n, k) = static_cast<T>(values[k]);
    const auto rank =
        std::ranges::count_if(values, [&](double v) { return v > 1e-10 * values[0]; });
    if (ranks && std::is_same_v<T, double> && (*ranks)[n] != rank)
      r.fault("expert " + std::to_string(n) + " has rank " + std::to_string(rank));
  }
  if (expected) r.judge("singular values", found, *expected);
}

template <class T>
void judge_quantities(golden_case& c, report& r, const quantities<T>& q) {
  check_sizes(c, q.sizes);
  r.compare("y", value_of(q.y), c.rows<double>("y64"));
  if (q.hidden && c.has("hidden64"))
    r.compare("hidden", value_of(*q.hidden), c.rows<double>("hidden64"));
  for (extent level = 0; level < q.scores.size(); ++level) {
    const std::string scores = "scores." + std::to_string(level),
                      coefficients = "coefficients." + std::to_string(level);
    if (c.has(scores))
      r.compare(scores, value_of(q.scores[level]), c.rows<double>(scores),
                q.score_magnitudes[level]);
    if (!c.has(coefficients)) continue;
    const auto a = value_of(q.coefficients[level]);
    const auto expected = c.rows<double>(coefficients);
    r.compare(coefficients, a, expected, q.score_magnitudes[level]);
    r.compare_selection(coefficients, a, expected);
  }
  if (q.expert) judge_experts(c, r, q.expert);
  c.ignore("y");
}

template <class Layer>
constexpr bool is_block = requires(const Layer& l) { l.second; };

template <class Layer, class T = typename Layer::T>
quantities<T> quantities_of(const Layer& layer, const tensor<T, 2>& x) {
  constexpr extent levels = std::tuple_size_v<decltype(layer.gate.projections)>;
  quantities<T> q{{{"t", x.shape()[0]}, {"i", layer.gate.inputs()}}, layer(x)};
  if constexpr (is_block<Layer>) {
    q.sizes.insert(q.sizes.end(), {{"h", layer.first.outputs()}, {"o", layer.second.outputs()}});
    q.hidden = layer.hidden(x);
  } else {
    q.sizes.emplace_back("o", layer.experts.outputs());
    q.expert = [layer](extent n) {
      std::array<extent, levels> index;
      for (extent e = levels; e-- > 0; n /= layer.gate.projections[e].shape()[1])
        index[e] = n % layer.gate.projections[e].shape()[1];
      if (n != 0) throw not_understood("there are fewer experts");
      return value_of(std::apply([&](auto... i) { return layer.experts.expert(i...); }, index));
    };
  }
  for (extent e = 0; e < levels; ++e)
    q.score_magnitudes.push_back(score_magnitudes(x, layer.gate.projections[e], layer.gate.means[e],
                                                  layer.gate.variances[e], layer.gate.layer_norm));
  [&]<extent... Level>(std::index_sequence<Level...>) {
    (q.scores.push_back(layer.gate.template scores<Level>(x)), ...);
    (q.coefficients.push_back(layer.template coefficients<Level>(x)), ...);
  }(std::make_index_sequence<levels>());
  return q;
}

// describe() tells which metadata follows from the type of the layer, and which only the metadata
// tells.
template <class Layer>
void judge_layer(golden_case& c, report& r) {
  auto layer = load<Layer>(c.weights());
  const io::metadata_reader said(c.metadata(), c.file());
  Layer::describe(layer, said);
  const auto x = c.rows<typename Layer::T>("x");
  judge_quantities(c, r, quantities_of(layer, x));
  judge_gradients(c, r, layer, x);
  judge_ranks(r, layer, x, c.rows<double>("y64"));
}

template <template <extent, class> class Experts, extent Levels>
void judge_levels(golden_case& c, report& r) {
  const auto judge = [&]<class T>(golden_case& a_case, T) {
    if (c.text("block") == "1") judge_layer<mumoe_block<Experts<Levels, T>>>(a_case, r);
    else judge_layer<mumoe<Experts<Levels, T>>>(a_case, r);
  };
  golden_case again = c;
  judge(again, float());
  judge(c, double());
}

template <template <extent, class> class Experts>
void judge_kind(golden_case& c, report& r) {
  constexpr void (*by_levels[])(golden_case&, report&) = {
      judge_levels<Experts, 1>, judge_levels<Experts, 2>, judge_levels<Experts, 3>,
      judge_levels<Experts, 4>, judge_levels<Experts, 5>, judge_levels<Experts, 6>};
  const auto levels = c.number<extent>("levels");
  if (levels < 1 || levels > std::size(by_levels))
    throw not_understood("levels = " + c.required("levels"));
  by_levels[levels - 1](c, r);
}

}  // namespace fmoe::golden
