// SPDX-License-Identifier: MIT
#include "mumoe.hpp"

#include <fmoe/mumoe.hpp>

#include "singular_values.hpp"

namespace fmoe::golden {

namespace {

template <class Layer>
constexpr bool is_block = requires(const Layer& l) { l.second; };

// What follows from the layer's type is compared as text by describe(); these are the tensors' extents.
template <class Layer>
named_sizes sizes_of(const Layer& layer) {
  if constexpr (is_block<Layer>)
    return {{"i", layer.gate.inputs()}, {"h", layer.first.outputs()}, {"o", layer.second.outputs()}};
  else
    return {{"i", layer.gate.inputs()}, {"o", layer.experts.outputs()}};
}

// The indices of expert `flat`, which counts row-major over the levels.
template <extent Levels, class T>
std::array<extent, Levels> indices_of(extent flat, const expert_gate<Levels, T>& gate) {
  std::array<extent, Levels> n;
  for (extent e = Levels; e-- > 0; flat /= gate.projections[e].shape()[1]) n[e] = flat % gate.projections[e].shape()[1];
  if (flat != 0) throw not_understood("there are fewer experts");
  return n;
}

template <class T>
tensor<double, 2> widened(const tensor<T, 2>& m) {
  tensor<double, 2> r(m.shape());
  std::copy_n(m.data(), m.size(), r.data());
  return r;
}

// Row n of `singular_values` belongs to expert n. The rank counts those above 1e-10 of the largest, which only double
// can tell.
template <class Layer>
void judge_experts(golden_case& c, report& r, const Layer& layer) {
  using T = typename Layer::T;
  const auto expert = [&](extent n) {
    return std::apply([&](auto... index) { return evaluate(erased(layer.experts.expert(index...))); }, indices_of(n, layer.gate));
  };
  const auto names = c.unread();
  for (const std::string& name : names) {
    extent n = 0;
    const char *first = name.data() + std::min<extent>(7, name.size()), *last = name.data() + name.size();
    if (!name.starts_with("expert.") || std::from_chars(first, last, n).ptr != last) continue;
    r.compare(name, expert(n), c.rows<double>(name));
  }
  const auto expected = c.has("singular_values") ? std::optional(c.rows<double>("singular_values")) : std::nullopt;
  const auto ranks = c.has("rank") ? std::optional(c.integers("rank")) : std::nullopt;
  const extent count = expected ? expected->shape()[0] : ranks ? ranks->size() : 0;
  tensor<T, 2> found(expected ? expected->shape() : std::array<extent, 2>{});
  for (extent n = 0; n < count; ++n) {
    const auto values = singular_values(widened(expert(n)));
    if (expected && values.size() != found.shape()[1]) throw not_understood("singular values of another number");
    if (expected) std::ranges::transform(values, found.data() + n * values.size(), [](double v) { return static_cast<T>(v); });
    const auto rank = std::ranges::count_if(values, [&](double v) { return v > 1e-10 * values[0]; });
    if (ranks && std::is_same_v<T, double> && (n >= ranks->size() || (*ranks)[n] != rank))
      r.fault("expert " + std::to_string(n) + " has rank " + std::to_string(rank));
  }
  if (expected) r.compare("singular values", found, *expected);
}

template <class Layer>
void judge_layer(golden_case& c, report& r) {
  using T = typename Layer::T;
  auto layer = load<Layer>(c.weights());
  io::describe(layer, io::metadata_reader(c.metadata(), c.file()), c.file());
  const auto x = c.rows<T>("x");
  check_sizes(c, {{"t", x.shape()[0]}});
  check_sizes(c, sizes_of(layer));

  r.compare("y", evaluate(layer(x)), c.rows<double>("y64"));
  if constexpr (is_block<Layer>) {
    if (c.has("hidden64")) r.compare("hidden", evaluate(layer.hidden(x)), c.rows<double>("hidden64"));
  } else {
    judge_experts(c, r, layer);
  }
  const auto judge_level = [&]<extent Level>(std::integral_constant<extent, Level>) {
    const std::string level = std::to_string(Level);
    if (c.has("scores." + level))
      r.compare("scores." + level, evaluate(layer.gate.template scores<Level>(x)), c.rows<double>("scores." + level));
    if (!c.has("coefficients." + level)) return;
    const auto a = evaluate(layer.template coefficients<Level>(x));
    const auto expected = c.rows<double>("coefficients." + level);
    r.compare("coefficients." + level, a, expected);
    r.compare_selection("coefficients." + level, a, expected);
  };
  [&]<extent... Level>(std::index_sequence<Level...>) {
    (judge_level(std::integral_constant<extent, Level>()), ...);
  }(std::make_index_sequence<std::tuple_size_v<decltype(layer.gate.projections)>>());
  c.ignore("y");
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
  constexpr void (*by_levels[])(golden_case&, report&) = {judge_levels<Experts, 1>, judge_levels<Experts, 2>,
                                                          judge_levels<Experts, 3>, judge_levels<Experts, 4>,
                                                          judge_levels<Experts, 5>, judge_levels<Experts, 6>};
  const auto levels = c.number<extent>("levels");
  if (levels < 1 || levels > std::size(by_levels)) throw not_understood("levels = " + c.required("levels"));
  by_levels[levels - 1](c, r);
}

}  // namespace

void judge_mumoe(golden_case& c, report& r) {
  const std::string kind = c.required("kind");
  if (kind == "cp") judge_kind<cp_experts>(c, r);
  else if (kind == "tr") judge_kind<tr_experts>(c, r);
  else if (kind == "tucker") judge_kind<tucker_experts>(c, r);
  else if (kind == "dense") judge_kind<dense_experts>(c, r);
  else throw not_understood("kind " + kind);
}

}  // namespace fmoe::golden
