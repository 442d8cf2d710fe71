// SPDX-License-Identifier: MIT
// Layers with an edit: an expert is ablated, a head is rewritten, or the output is steered towards
// an expert. An edited layer is a layer, which you can evaluate, compile and edit again. It shares
// all weights, also the packed ones, with the original layer and does not change it.
#pragma once

#include <algorithm>
#include <concepts>
#include <initializer_list>
#include <iterator>
#include <ranges>
#include <span>
#include <tuple>

#include <fmoe/layers/cross_layer_transcoder.hpp>
#include <fmoe/layers/mumoe.hpp>
#include <fmoe/layers/mxd.hpp>
#include <fmoe/layers/peer.hpp>
#include <fmoe/layers/sparse_mlp.hpp>

namespace fmoe::detail {

// The number of levels of experts, 1 unless the layer is a hierarchy.
template <class Layer>
inline constexpr extent levels_of = 1;
template <class Layer>
  requires requires { Layer::levels; }
inline constexpr extent levels_of<Layer> = Layer::levels;

// A layer with coefficients and what to do with them, which edits change.
template <class Layer>
concept has_experts =
    levels_of<Layer> > 1 || requires(const Layer& layer, const argument<0, 2>& x) {
      layer.coefficients(x);
      layer.mixed(x, layer.coefficients(x));
    };

// [t, i] -> [t, n]: the coefficients of one level; [t, h, e] if the layer has heads.
template <extent Level = 0, class Layer>
auto coefficients_of(const Layer& layer, const operand_of<2> auto& x) {
  if constexpr (requires { layer.template coefficients<Level>(x); })
    return layer.template coefficients<Level>(x);
  else return layer.coefficients(x);
}

// [t, i], and the coefficients of each level -> [t, n], for one level.
template <extent Level, class Layer>
auto norms_of(const Layer& layer, const operand_of<2> auto& x, const operand auto&... a) {
  constexpr bool of_level = requires { layer.template contribution_norms<Level>(x, a...); };
  constexpr bool of_layer = requires { layer.contribution_norms(x, a...); };
  static_assert(of_level || of_layer,
                "contribution_norms: the layer has contribution_norms(x, a) beside mixed(x, a)");
  if constexpr (of_level) return layer.template contribution_norms<Level>(x, a...);
  else if constexpr (of_layer) return layer.contribution_norms(x, a...);
  else return refused();
}

// Returns the extent of the last axis of the expression that `make` makes from a layer's input.
extent width_of(const auto& make) {
  return lowered_graph(std::array{as_expression(make(argument<0, 2>{1})).untyped()}).width(0);
}

template <class Layer, class Input, class Weight, class Output>
struct edited_layer {
  static constexpr extent levels = levels_of<Layer>;

  Layer layer;
  Input input;
  Weight weight;
  Output output;

  template <extent Level = 0>
  auto coefficients(const operand_of<2> auto& x) const {
    return weight(coefficients_of<Level>(layer, input(x)), std::integral_constant<extent, Level>());
  }
  auto mixed(const operand_of<2> auto& x, const operand auto&... a) const {
    return output(layer.mixed(input(x), a...), input(x), a...);
  }
  // The norms of what the experts add; `output` is not among them.
  template <extent Level = 0>
  auto contribution_norms(const operand_of<2> auto& x, const operand auto&... a) const
    requires(sizeof...(a) == levels)
  {
    return norms_of<Level>(layer, input(x), a...);
  }
  template <extent Level = 0>
  auto contribution_norms(const operand_of<2> auto& x) const {
    return with_coefficients(x,
                             [&](const auto&... a) { return contribution_norms<Level>(x, a...); });
  }
  auto operator()(const operand_of<2> auto& x) const {
    return with_coefficients(x, [&](const auto&... a) { return mixed(x, a...); });
  }
  auto operator()(const auto&... x) const { return not_rows(x...); }

 private:
  auto with_coefficients(const auto& x, const auto& make) const {
    return [&]<extent... Level>(std::index_sequence<Level...>) {
      return make(coefficients<Level>(x)...);
    }(std::make_index_sequence<levels>());
  }
};

// Returns the layer below all edits.
template <class Layer>
auto innermost(const Layer& layer) {
  if constexpr (requires { layer.layer; }) return innermost(layer.layer);
  else return layer;
}

}  // namespace fmoe::detail

namespace fmoe {

// Returns N, the number of experts of one level: layer.expert_count() if there is such a function,
// else the number of coefficients of a row.
template <std::size_t Level = 0>
std::size_t expert_count(const auto& layer) {
  const auto base = detail::innermost(layer);
  if constexpr (requires { base.expert_count(); }) return base.expert_count();
  else
    return detail::width_of(
        [&](const auto& x) { return detail::coefficients_of<Level>(layer, x); });
}

// A function of an edit that changes nothing: it returns its first argument.
struct unchanged {
  auto operator()(const auto& first, const auto&...) const { return first; }
};

// A layer with y = output(mixed(x', a'...), x', a'...), x' = input(x) and a' = weight(a of x',
// level), made from a layer that has coefficients(x) and mixed(x, a...).
template <class Layer, class Input = unchanged, class Weight = unchanged, class Output = unchanged>
auto edited(const Layer& layer, Input input = {}, Weight weight = {}, Output output = {}) {
  return detail::edited_layer<Layer, Input, Weight, Output>{layer, std::move(input),
                                                            std::move(weight), std::move(output)};
}

}  // namespace fmoe

namespace fmoe::detail {

// [n] -> the shape of a row of the coefficients: a number of each expert, for all that it has.
template <class Layer, class T>
auto like_coefficients(const Layer& layer, const parameter<T, 1>& of_experts) {
  const auto base = innermost(layer);
  if constexpr (requires { base.like_coefficients(of_experts); })
    return base.like_coefficients(of_experts);
  else return of_experts;
}

template <class R>
concept list_of_experts =
    std::ranges::input_range<const R&> && std::integral<std::ranges::range_value_t<const R&>> &&
    !std::same_as<std::ranges::range_value_t<const R&>, bool>;
template <class R>
concept list_of_pairs = std::ranges::input_range<const R&> &&
                        std::same_as<std::ranges::range_value_t<const R&>, index_pair>;
template <class R>
concept list_of_numbers = std::ranges::forward_range<const R&> &&
                          std::convertible_to<std::ranges::range_value_t<const R&>, double>;

// `ablated` of a layer that has experts.
template <extent Level, class Layer>
auto ablated_experts(const Layer& layer, const list_of_experts auto& experts) {
  parameter<float, 1> kept({expert_count<Level>(layer)});
  float* const to = elements_to_write(kept);
  std::fill_n(to, kept.size(), 1.f);
  for (const auto expert : experts) {
    const auto n = static_cast<extent>(expert);
    expects<value_error>(n < kept.size(), "[ablated] there is no expert ", n, " among ",
                         kept.size());
    to[n] = 0;
  }
  return edited(layer, unchanged(),
                [factors = like_coefficients(layer, kept)](const auto& a, auto level) {
                  if constexpr (level == Level) return a * factors;
                  else return a;
                });
}

}  // namespace fmoe::detail

namespace fmoe {

// Returns the layer with W_n := 0 for these experts: their coefficients are multiplied by 0 and
// nothing is renormalised (Oldfield et al. 2024, Sec. 4.1.2). In a hierarchy this holds for all
// experts below these experts of one level, in PEER for all heads that share an expert. A selection
// stays a selection, and an ablated expert then costs nothing; where every expert has a
// coefficient, as in a muMoE, the layer computes as much as before. `experts` is any list of whole
// numbers. Throws value_error if there is no such expert.
//
//   const auto without = ablated(layer, {3, 5});
//   const auto changed = evaluate(without(x));
template <std::size_t Level = 0, class Layer, class... Experts>
auto ablated(const Layer& layer, const Experts&... experts) {
  constexpr bool has_experts = detail::has_experts<Layer>;
  constexpr bool is_list = sizeof...(Experts) == 1 && (detail::list_of_experts<Experts> && ...);
  static_assert(Level < detail::levels_of<Layer>, "ablated: levels are counted from 0");
  static_assert(has_experts,
                "ablated: the layer has coefficients(x) and mixed(x, a), or a list of deleted "
                "pairs");
  static_assert(is_list || !has_experts,
                "ablated: the experts are a list of whole numbers, as in ablated(layer, {3, 5})");
  if constexpr (!has_experts || !is_list) return layer;
  else return detail::ablated_experts<Level>(layer, experts...);
}
template <std::size_t Level = 0, class Layer>
auto ablated(const Layer& layer, std::initializer_list<std::size_t> experts) {
  return ablated<Level>(layer, std::span(experts.begin(), experts.size()));
}

// Returns the Monet layer without these experts (i, j) and without those already deleted (Park et
// al. 2024, Sec. 5). The result is exact and the list sparse. When it is applied, a layer throws
// value_error if there is no such pair.
template <class Layer>
  requires requires(Layer& l) { l.deleted; }
Layer ablated(Layer layer, const detail::list_of_pairs auto& experts) {
  std::ranges::copy(experts, std::back_inserter(layer.deleted));
  return layer;
}
template <class Layer>
  requires requires(Layer& l) { l.deleted; }
Layer ablated(const Layer& layer, std::initializer_list<index_pair> experts) {
  return ablated(layer, std::span(experts.begin(), experts.size()));
}

}  // namespace fmoe

namespace fmoe::detail {

// [t, n] or [t, h, e], numbers of the shape of a row, [o] -> [t, o].
auto weighted_sum(const operand_of<2> auto& a, const auto& mean, const auto& one) {
  return einsum<"tn,n,o->to">(a, mean, one);
}
auto weighted_sum(const operand_of<3> auto& a, const auto& mean, const auto& one) {
  return einsum<"the,he,o->to">(a, mean, one);
}

// `rewritten` of a layer that has experts.
template <extent Level, class Layer>
auto rewritten_layer(const Layer& layer, extent head, const list_of_numbers auto& mean,
                     double lambda) {
  const extent experts = expert_count<Level>(layer), heads = width_of(layer),
               means = static_cast<extent>(std::ranges::distance(mean));
  expects<shape_error>(means == experts, "[rewritten] there are ", means, " mean coefficients and ",
                       experts, " experts");
  expects<value_error>(head < heads, "[rewritten] there is no head ", head, " among ", heads);
  using T = typename decltype(layer(argument<0, 2>{1}))::scalar;
  parameter<T, 1> correction({experts}), one({heads});
  std::ranges::transform(mean, elements_to_write(correction), [&](const auto& a) {
    return static_cast<T>(lambda * static_cast<double>(a));
  });
  elements_to_write(one)[head] = 1;
  return edited(layer, unchanged(), unchanged(),
                [weights = like_coefficients(layer, correction), one](const auto& y, const auto&,
                                                                      const auto&... a) {
                  return y + weighted_sum(std::get<Level>(std::tie(a...)), weights, one);
                });
}

}  // namespace fmoe::detail

namespace fmoe {

// Returns the layer with y_o + lambda mean . a for the head o (Oldfield et al. 2024, Eq. 5), where
// `mean` [n], any list of numbers, holds the mean coefficients of the subpopulation whose output is
// corrected. In a hierarchy a are the coefficients of one level; that of expert n is the sum over
// all experts below it. Throws shape_error unless there is a mean for each expert, and value_error
// if there is no such head.
template <std::size_t Level = 0, class Layer, class Mean>
auto rewritten(const Layer& layer, std::size_t head, const Mean& mean, double lambda) {
  constexpr bool has_experts = detail::has_experts<Layer>, is_list = detail::list_of_numbers<Mean>;
  static_assert(Level < detail::levels_of<Layer>, "rewritten: levels are counted from 0");
  static_assert(has_experts, "rewritten: the layer has coefficients(x) and mixed(x, a)");
  static_assert(is_list || !has_experts,
                "rewritten: the mean coefficients are a list with a number for each expert");
  if constexpr (!has_experts || !is_list) return layer;
  else return detail::rewritten_layer<Level>(layer, head, mean, lambda);
}
template <std::size_t Level = 0, class Layer>
auto rewritten(const Layer& layer, std::size_t head, std::initializer_list<double> mean,
               double lambda) {
  return rewritten<Level>(layer, head, std::span(mean.begin(), mean.size()), lambda);
}
template <std::size_t Level = 0, class Layer, class... More>
  requires(sizeof...(More) != 3)
Layer rewritten(const Layer& layer, const More&...) {
  static_assert(detail::never<Layer>, "rewritten: write rewritten(layer, head, mean, lambda)");
  return layer;
}

}  // namespace fmoe

namespace fmoe::detail {

template <class Layer, class X>
concept calls_expert = requires(const Layer& layer, const X& x, extent n) { layer.expert(n)(x); };
template <class Layer>
concept has_matrix_of_expert =
    operand_of<decltype(std::declval<const Layer&>().expert(extent{0})), 2>;

}  // namespace fmoe::detail

namespace fmoe {

// [t, i] -> [t, o]. Returns the contribution of expert n with the coefficient 1, W_n' z; for a
// sparse MLP row n of the decoder, [o], for a cross-layer transcoder [l, o]; for PEER gelu(x . u_n)
// v_n.
template <class T>
auto expert_output(const mxd<T>& layer, const operand_of<2> auto& x, std::size_t n) {
  return einsum<"o,th,ho->to">(detail::expert_slice<0>(layer.scales, n), layer.hidden(x),
                               layer.decoder);
}
template <class T>
auto expert_output(const sparse_mlp<T>& layer, const operand_of<2> auto&, std::size_t n) {
  return layer.expert(n);
}
template <class T>
auto expert_output(const cross_layer_transcoder<T>& layer, const operand_of<2> auto&,
                   std::size_t n) {
  return as_expression(layer.expert(n));
}
template <class T>
auto expert_output(const peer<T>& layer, const operand_of<2> auto& x, std::size_t n) {
  const auto product =
      einsum<"td,d->t">(layer.normalised(x), detail::expert_slice<0>(layer.down, n));
  return einsum<"t,d->td">(apply(layer.activation, product), detail::expert_slice<0>(layer.up, n));
}
template <class Experts>
auto expert_output(const mumoe<Experts>& layer, const operand_of<2> auto& x, std::size_t n) {
  const auto output = [&](const auto& z) { return einsum<"ti,io->to">(z, layer.expert(n)); };
  return detail::made_of(layer.experts, layer.input_norm(x), layer.gate.inputs(), std::tuple(),
                         output);
}
auto expert_output(const auto& edit, const operand_of<2> auto& x, std::size_t n)
  requires requires { edit.layer; }
{
  return expert_output(edit.layer, edit.input(x), n);
}
// For other layers it is expert(n) of x: layer.expert(n) is called with x, or is a matrix [i, o]. A
// layer of your own whose experts are neither has an overload of this function in its namespace.
template <class Layer, operand_of<2> X>
auto expert_output(const Layer& layer, const X& x, std::size_t n)
  requires(detail::calls_expert<Layer, X> || detail::has_matrix_of_expert<Layer>)
{
  if constexpr (detail::calls_expert<Layer, X>) return layer.expert(n)(x);
  else return einsum<"ti,io->to">(x, layer.expert(n));
}

}  // namespace fmoe

namespace fmoe::detail {

// True if a layer, without its edits, says what one expert adds.
template <class Layer>
concept has_expert_output = requires(const Layer& layer, const argument<0, 2>& x) {
  expert_output(innermost(layer), x, extent{0});
};

// `steered` of a layer that has experts.
template <extent Level, class Layer>
auto steered_layer(const Layer& layer, extent n, double lambda) {
  const extent experts = expert_count<Level>(layer);
  expects<value_error>(n < experts, "[steered] there is no expert ", n, " among ", experts);
  if constexpr (requires { innermost(layer).gate.projections; }) {
    const auto centre = sliced<1>(innermost(layer).gate.projections[Level], n);
    return edited(layer, [centre, lambda](const auto& x) { return x + lambda * centre; });
  } else if constexpr (!has_expert_output<Layer>) {
    static_assert(never<Layer>,
                  "steered: the layer has expert(n), which takes x or is a matrix [i, o], or there "
                  "is an expert_output(layer, x, n)");
    return layer;
  } else {
    return edited(layer, unchanged(), unchanged(),
                  [layer, n, lambda](const auto& y, const auto& x, const auto&...) {
                    return y + lambda * expert_output(layer, x, n);
                  });
  }
}

}  // namespace fmoe::detail

namespace fmoe {

// Returns the layer steered towards expert n by lambda: y + lambda E_n(x), where E_n(x) is
// expert_output. For an mxd or a sparse_mlp it is y + lambda W_n' z or y + lambda d_n (Oldfield et
// al. 2025, Sec. 3.2.2). For a mumoe or a block it is the layer's output at x + lambda g_n, where
// g_n is the expert's column of the gate of one level, its cluster centre (Oldfield et al. 2024,
// App. G.2). Throws value_error if there is no such expert.
//
//   const auto towards = evaluate(steered(layer, 4, 1.5)(x));
template <std::size_t Level = 0, class Layer>
auto steered(const Layer& layer, std::size_t n, double lambda) {
  static_assert(Level < detail::levels_of<Layer>, "steered: levels are counted from 0");
  static_assert(detail::has_experts<Layer>,
                "steered: the layer has coefficients(x) and mixed(x, a)");
  if constexpr (!detail::has_experts<Layer>) return layer;
  else return detail::steered_layer<Level>(layer, n, lambda);
}

// Returns the Monet layer steered towards expert (i, j): y + lambda E_ij(x). It is called as the
// layer is. When it is applied, throws value_error if there is no such pair.
template <class Layer>
  requires requires(Layer& l) { l.deleted; }
auto steered(const Layer& layer, const index_pair& expert, double lambda) {
  const auto one = layer.expert(expert[0], expert[1]);
  return [layer, one, lambda](const auto& x, const auto& g1, const auto& g2) {
    return layer(x, g1, g2) + lambda * one(x);
  };
}

template <std::size_t Level = 0, class Layer, class... More>
  requires(sizeof...(More) != 2)
Layer steered(const Layer& layer, const More&...) {
  static_assert(detail::never<Layer>,
                "steered: write steered(layer, n, lambda), for Monet steered(layer, {i, j}, "
                "lambda)");
  return layer;
}

}  // namespace fmoe
