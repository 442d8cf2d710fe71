// SPDX-License-Identifier: MIT
// N1 x ... x NE linear experts in one weight W [n1, ..., nE, i, o] (Oldfield et al. 2024, Eqs. 1
// and 15): dense, or as the factors of a CP, tensor-ring, tensor-train or Tucker decomposition,
// whose forward pass is one einsum over the factors.
#pragma once

#include <array>
#include <concepts>
#include <tuple>
#include <vector>

#include <fmoe/arrays/released.hpp>
#include <fmoe/layers/expert_labels.hpp>
#include <fmoe/layers/expert_slice.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe::detail {

template <class... Xs>
refused not_experts_inputs(const Xs&...) {
  static_assert(
      never<Xs...>,
      "experts take the input [token, input], then the coefficients [token, expert] of each level");
  return {};
}

template <class... Indices>
refused not_one_expert(const Indices&...) {
  static_assert(never<Indices...>, "expert: one index for each level");
  return {};
}

// True for the indices of one expert.
template <extent Levels, class... Indices>
concept names_expert =
    sizeof...(Indices) == Levels && (std::convertible_to<Indices, extent> && ...);

// Returns W_n of one expert: the einsum over its slices of the factors of each level and the
// others.
template <extent Axis, subscripts S, class T, extent Rank, extent Levels>
auto expert_of(const std::array<parameter<T, Rank>, Levels>& factors,
               const std::array<extent, Levels>& expert, const auto&... others) {
  return [&]<extent... Level>(std::index_sequence<Level...>) {
    return einsum<S>(expert_slice<Axis>(factors[Level], expert[Level], Level, Levels)...,
                     others...);
  }(std::make_index_sequence<Levels>());
}

// Visits "factors.0", ...: the factor of each level, then those of input and output. In their
// labels z is i, or i + 1 with a bias.
template <class Labels>
void released_factors(auto& experts, auto&& visit) {
  extent k = 0;
  const auto factor = [&](const std::string& labels, auto& parameter) {
    visit(released_name{"factors." + std::to_string(k++), presence::required, labels}, parameter);
  };
  for (auto& u : experts.experts) factor(Labels::factor(k), u);
  factor(Labels::input, experts.input);
  factor(Labels::output, experts.output);
}

}  // namespace fmoe::detail

namespace fmoe {

// CP: W = sum_r u_1[n1, r] ... u_E[nE, r] v[i, r] w[o, r].
template <std::size_t Levels = 1, class T = float>
  requires detail::hierarchy<Levels>
struct cp_experts {
  std::array<parameter<T, 2>, Levels> experts;  // n r, for each level
  parameter<T, 2> input;                        // i r
  parameter<T, 2> output;                       // o r

  using labels = detail::cp_labels<Levels>;

  // [t, i] and [t, n] for each level -> [t, o], of one level "tn,nr,ti,ir,or->to". R (N + I + O)
  // multiply-adds.
  auto operator()(const operand_of<2> auto& z, const operand_of<2> auto&... a) const
    requires(sizeof...(a) == Levels)
  {
    return contracted<detail::forward<labels>>(z, a...);
  }
  auto operator()(const auto&... x) const { return detail::not_experts_inputs(x...); }

  // The einsum over coefficients, factors and z that has these subscripts.
  template <detail::subscripts S>
  auto contracted(const auto& z, const auto&... a) const {
    return std::apply([&](const auto&... u) { return einsum<S>(a..., u..., z, input, output); },
                      experts);
  }

  // Returns W_n [i, o] (Eq. 6); n has one index for each level. Throws value_error if there is no
  // such expert.
  auto expert(const auto&... n) const
    requires detail::names_expert<Levels, decltype(n)...>
  {
    return detail::expert_of<0, labels::one_expert>(experts, {static_cast<std::size_t>(n)...},
                                                    input, output);
  }
  auto expert(const auto&... n) const { return detail::not_one_expert(n...); }

  static constexpr std::string_view kind = "cp";
  static constexpr std::size_t levels = Levels;
  using scalar = T;
  std::size_t inputs() const { return input.shape()[0]; }
  std::size_t outputs() const { return output.shape()[0]; }
  std::vector<std::size_t> ranks() const { return {input.shape()[1]}; }

  static void released(auto& experts, auto&& visit) {
    detail::released_factors<labels>(experts, visit);
  }
};

// Tensor ring: W = tr(U_1[:, n1, :] ... U_E[:, nE, :] V[:, i, :] W[:, o, :]). With a first rank of
// 1 it is a tensor train.
template <std::size_t Levels = 1, class T = float>
  requires detail::hierarchy<Levels>
struct tr_experts {
  // Labels p n q, for each level; q is the p of the next level.
  std::array<parameter<T, 3>, Levels> experts;
  parameter<T, 3> input;   // q i r
  parameter<T, 3> output;  // r o p

  using labels = detail::ring_factor_labels<Levels>;

  // [t, i] and [t, n] for each level -> [t, o], of one level "tn,pnq,ti,qir,rop->to".
  auto operator()(const operand_of<2> auto& z, const operand_of<2> auto&... a) const
    requires(sizeof...(a) == Levels)
  {
    return contracted<detail::forward<labels>>(z, a...);
  }
  auto operator()(const auto&... x) const { return detail::not_experts_inputs(x...); }

  // The einsum over coefficients, factors and z that has these subscripts.
  template <detail::subscripts S>
  auto contracted(const auto& z, const auto&... a) const {
    return std::apply([&](const auto&... u) { return einsum<S>(a..., u..., z, input, output); },
                      experts);
  }

  // Returns W_n [i, o] (Eq. 8); n has one index for each level. Throws value_error if there is no
  // such expert.
  auto expert(const auto&... n) const
    requires detail::names_expert<Levels, decltype(n)...>
  {
    return detail::expert_of<1, labels::one_expert>(experts, {static_cast<std::size_t>(n)...},
                                                    input, output);
  }
  auto expert(const auto&... n) const { return detail::not_one_expert(n...); }

  static constexpr std::string_view kind = "tr";
  static constexpr std::size_t levels = Levels;
  using scalar = T;
  std::size_t inputs() const { return input.shape()[1]; }
  std::size_t outputs() const { return output.shape()[1]; }
  std::vector<std::size_t> ranks() const {
    std::vector<std::size_t> r;
    for (const auto& u : experts) r.push_back(u.shape()[0]);
    r.insert(r.end(), {input.shape()[0], output.shape()[0]});
    return r;
  }

  static void released(auto& experts, auto&& visit) {
    detail::released_factors<labels>(experts, visit);
  }
};

// Tucker: W = Z x_1 U_1 ... x_E U_E x V x W, each factor along its mode of the core Z.
template <std::size_t Levels = 1, class T = float>
  requires detail::hierarchy<Levels>
struct tucker_experts {
  static_assert(Levels + 2 <= detail::max_rank,
                "tucker_experts: the core of E levels has E + 2 axes, at most 8");

  std::array<parameter<T, 2>, Levels> experts;  // n p, for each level
  parameter<T, 2> input;                        // i q
  parameter<T, 2> output;                       // o r
  parameter<T, Levels + 2> core;                // p q r

  using labels = detail::tucker_labels<Levels>;

  // [t, i] and [t, n] for each level -> [t, o], of one level "tn,np,ti,iq,or,pqr->to".
  auto operator()(const operand_of<2> auto& z, const operand_of<2> auto&... a) const
    requires(sizeof...(a) == Levels)
  {
    return contracted<detail::forward<labels>>(z, a...);
  }
  auto operator()(const auto&... x) const { return detail::not_experts_inputs(x...); }

  // The einsum over coefficients, factors and z that has these subscripts.
  template <detail::subscripts S>
  auto contracted(const auto& z, const auto&... a) const {
    return std::apply(
        [&](const auto&... u) { return einsum<S>(a..., u..., z, input, output, core); }, experts);
  }

  // Returns W_n [i, o]; n has one index for each level. Throws value_error if there is no such
  // expert.
  auto expert(const auto&... n) const
    requires detail::names_expert<Levels, decltype(n)...>
  {
    return detail::expert_of<0, labels::one_expert>(experts, {static_cast<std::size_t>(n)...},
                                                    input, output, core);
  }
  auto expert(const auto&... n) const { return detail::not_one_expert(n...); }

  static constexpr std::string_view kind = "tucker";
  static constexpr std::size_t levels = Levels;
  using scalar = T;
  std::size_t inputs() const { return input.shape()[0]; }
  std::size_t outputs() const { return output.shape()[0]; }
  std::vector<std::size_t> ranks() const { return {core.shape().begin(), core.shape().end()}; }

  // The name `core` is ours, because the authors released no Tucker layer.
  static void released(auto& experts, auto&& visit) {
    detail::released_factors<labels>(experts, visit);
    visit(released_name{"core", presence::required, std::string(labels::core.view())},
          experts.core);
  }
};

// The weight W itself: a soft mixture of linear experts.
template <std::size_t Levels = 1, class T = float>
  requires detail::hierarchy<Levels>
struct dense_experts {
  static_assert(Levels + 2 <= detail::max_rank,
                "dense_experts: the weight of E levels has E + 2 axes, at most 8");

  parameter<T, Levels + 2> weight;  // n i o, one n for each level

  using labels = detail::dense_labels<Levels>;

  // [t, i] and [t, n] for each level -> [t, o], of one level "tn,ti,nio->to". N I O multiply-adds.
  auto operator()(const operand_of<2> auto& z, const operand_of<2> auto&... a) const
    requires(sizeof...(a) == Levels)
  {
    return contracted<detail::forward<labels>>(z, a...);
  }
  auto operator()(const auto&... x) const { return detail::not_experts_inputs(x...); }

  // The einsum over coefficients, factors and z that has these subscripts.
  template <detail::subscripts S>
  auto contracted(const auto& z, const auto&... a) const {
    return einsum<S>(a..., z, weight);
  }

  // Returns W_n [i, o]; n has one index for each level. Throws value_error if there is no such
  // expert.
  auto expert(const auto&... n) const
    requires detail::names_expert<Levels, decltype(n)...>
  {
    return as_expression(entries<0>(weight, static_cast<std::size_t>(n)...));
  }
  auto expert(const auto&... n) const { return detail::not_one_expert(n...); }

  static constexpr std::string_view kind = "dense";
  static constexpr std::size_t levels = Levels;
  using scalar = T;
  std::size_t inputs() const { return weight.shape()[Levels]; }
  std::size_t outputs() const { return weight.shape()[Levels + 1]; }
  std::vector<std::size_t> ranks() const { return {}; }

  // The name `weight` is ours, because the authors released no dense layer.
  static void released(auto& experts, auto&& visit) {
    visit(released_name{"weight", presence::required, std::string(labels::in_file.view())},
          experts.weight);
  }

 private:
  template <std::size_t Level>
  static auto entries(const auto& w, std::size_t n, auto... m) {
    const auto below = detail::expert_slice<0>(w, n, Level, Levels);
    if constexpr (sizeof...(m) == 0) return below;
    else return entries<Level + 1>(below, m...);
  }
};

}  // namespace fmoe
