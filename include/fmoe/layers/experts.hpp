// SPDX-License-Identifier: MIT
// N1 x ... x NE linear experts in one weight W [n1, ..., nE, i, o] (Oldfield et al. 2024, Eqs. 1
// and 15): dense, or as the factors of a CP, tensor-ring, tensor-train or Tucker decomposition,
// whose forward pass is one einsum over the factors.
#pragma once

#include <array>
#include <concepts>
#include <tuple>
#include <utility>
#include <vector>

#include <fmoe/arrays/released.hpp>
#include <fmoe/arrays/slice.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe {

// The letters of the experts of each level, and those of the ranks of tensor rings and Tucker
// cores.
inline constexpr std::string_view expert_labels = "nmlkjhg", ring_labels = "pqrsuvwxy";

template <class... Xs>
refused not_experts_inputs(const Xs&...) {
  static_assert(
      never<Xs...>,
      "experts take the input [token, input], then the coefficients [token, expert] of each level");
  return {};
}

// Joins the results of `of(level)` for each level.
template <extent Levels>
constexpr auto for_levels(auto of) {
  return [&]<extent... Level>(std::index_sequence<Level...>) {
    return (of(Level) + ...);
  }(std::make_index_sequence<Levels>());
}

template <extent Levels>
concept hierarchy = Levels >= 1 && Levels <= expert_labels.size();

// Returns the subscripts of the coefficients of each level: "tn,tm,".
template <extent Levels>
constexpr auto coefficient_labels() {
  return for_levels<Levels>([](extent e) { return subscripts("t") + expert_labels[e] + ','; });
}

// Visits "factors.0", ...: the factor of each level, then those of input and output. In their
// labels z is i, or i + 1 with a bias.
void released_factors(auto& experts, auto&& visit, auto level_labels, const char* input_labels,
                      const char* output_labels) {
  extent k = 0;
  const auto factor = [&](const std::string& labels, auto& parameter) {
    visit(released_tensor{"factors." + std::to_string(k++), labels}, parameter);
  };
  for (auto& u : experts.experts) factor(level_labels(k), u);
  factor(input_labels, experts.input);
  factor(output_labels, experts.output);
}

// CP: W = sum_r u_1[n1, r] ... u_E[nE, r] v[i, r] w[o, r].
template <extent Levels = 1, class T = float>
  requires hierarchy<Levels>
struct cp_experts {
  std::array<parameter<T, 2>, Levels> experts;  // n r, for each level
  parameter<T, 2> input;                        // i r
  parameter<T, 2> output;                       // o r

  // "tn,nr,ti,ir,or->to"; with two levels "tn,tm,nr,mr,ti,ir,or->to".
  static constexpr subscripts forward =
      coefficient_labels<Levels>() +
      for_levels<Levels>([](extent e) { return subscripts("") + expert_labels[e] + "r,"; }) +
      "ti,ir,or->to";
  static constexpr subscripts one_expert =
      for_levels<Levels>([](extent) { return subscripts("r,"); }) + "ir,or->io";

  // [t, i] and [t, n] for each level -> [t, o]. It takes R (N + I + O) multiply-adds for each
  // token.
  auto operator()(const operand_of<2> auto& z, const operand_of<2> auto&... a) const
    requires(sizeof...(a) == Levels)
  {
    return std::apply(
        [&](const auto&... u) { return einsum<forward>(a..., u..., z, input, output); }, experts);
  }
  auto operator()(const auto&... x) const { return not_experts_inputs(x...); }

  // Returns W_n [i, o] (Eq. 6); n has one index for each level. Throws value_error if there is no
  // such expert.
  auto expert(std::convertible_to<extent> auto... n) const {
    return std::apply(
        [&](const auto&... u) {
          return einsum<one_expert>(slice<0>(u, static_cast<extent>(n))..., input, output);
        },
        experts);
  }

  static constexpr std::string_view kind = "cp";
  static constexpr extent levels = Levels;
  using scalar = T;
  extent inputs() const { return input.shape()[0]; }
  extent outputs() const { return output.shape()[0]; }
  std::vector<extent> ranks() const { return {input.shape()[1]}; }

  static void released(auto& experts, auto&& visit) {
    released_factors(
        experts, visit, [](extent e) { return std::string{expert_labels[e], 'r'}; }, "zr", "or");
  }
};

// Tensor ring: W = tr(U_1[:, n1, :] ... U_E[:, nE, :] V[:, i, :] W[:, o, :]). With a first rank of
// 1 it is a tensor train.
template <extent Levels = 1, class T = float>
  requires hierarchy<Levels>
struct tr_experts {
  // Labels p n q, for each level; q is the p of the next level.
  std::array<parameter<T, 3>, Levels> experts;
  parameter<T, 3> input;   // q i r
  parameter<T, 3> output;  // r o p

  static constexpr char before = ring_labels[Levels], between = ring_labels[Levels + 1];

  // "tn,pnq,ti,qir,rop->to"; with two levels "tn,tm,pnq,qmr,ti,ris,sop->to".
  static constexpr subscripts forward =
      coefficient_labels<Levels>() + for_levels<Levels>([](extent e) {
        return subscripts("") + ring_labels[e] + expert_labels[e] + ring_labels[e + 1] + ',';
      }) +
      "ti," + before + 'i' + between + ',' + between + "op->to";
  static constexpr subscripts one_expert =
      for_levels<Levels>(
          [](extent e) { return subscripts("") + ring_labels[e] + ring_labels[e + 1] + ','; }) +
      before + 'i' + between + ',' + between + "op->io";

  // [t, i] and [t, n] for each level -> [t, o].
  auto operator()(const operand_of<2> auto& z, const operand_of<2> auto&... a) const
    requires(sizeof...(a) == Levels)
  {
    return std::apply(
        [&](const auto&... u) { return einsum<forward>(a..., u..., z, input, output); }, experts);
  }
  auto operator()(const auto&... x) const { return not_experts_inputs(x...); }

  // Returns W_n [i, o] (Eq. 8); n has one index for each level. Throws value_error if there is no
  // such expert.
  auto expert(std::convertible_to<extent> auto... n) const {
    return std::apply(
        [&](const auto&... u) {
          return einsum<one_expert>(slice<1>(u, static_cast<extent>(n))..., input, output);
        },
        experts);
  }

  static constexpr std::string_view kind = "tr";
  static constexpr extent levels = Levels;
  using scalar = T;
  extent inputs() const { return input.shape()[1]; }
  extent outputs() const { return output.shape()[1]; }
  std::vector<extent> ranks() const {
    std::vector<extent> r;
    for (const auto& u : experts) r.push_back(u.shape()[0]);
    r.insert(r.end(), {input.shape()[0], output.shape()[0]});
    return r;
  }

  static void released(auto& experts, auto&& visit) {
    constexpr char input_labels[] = {before, 'z', between, 0},
                   output_labels[] = {between, 'o', 'p', 0};
    const auto level_labels = [](extent e) {
      return std::string{ring_labels[e], expert_labels[e], ring_labels[e + 1]};
    };
    released_factors(experts, visit, level_labels, input_labels, output_labels);
  }
};

// Tucker: W = Z x_1 U_1 ... x_E U_E x V x W, each factor along its mode of the core Z.
template <extent Levels = 1, class T = float>
  requires hierarchy<Levels>
struct tucker_experts {
  static_assert(Levels + 2 <= max_rank,
                "tucker_experts: the core of E levels has E + 2 axes, at most 8");

  std::array<parameter<T, 2>, Levels> experts;  // n p, for each level
  parameter<T, 2> input;                        // i q
  parameter<T, 2> output;                       // o r
  parameter<T, Levels + 2> core;                // p q r

  static constexpr char in = ring_labels[Levels], out = ring_labels[Levels + 1];
  static constexpr subscripts core_labels =
      for_levels<Levels>([](extent e) { return subscripts("") + ring_labels[e]; }) + in + out;

  // "tn,np,ti,iq,or,pqr->to"; with two levels "tn,tm,np,mq,ti,ir,os,pqrs->to".
  static constexpr subscripts forward =
      coefficient_labels<Levels>() + for_levels<Levels>([](extent e) {
        return subscripts("") + expert_labels[e] + ring_labels[e] + ',';
      }) +
      "ti,i" + in + ",o" + out + ',' + core_labels + "->to";
  static constexpr subscripts one_expert =
      for_levels<Levels>([](extent e) { return subscripts("") + ring_labels[e] + ','; }) + 'i' +
      in + ",o" + out + ',' + core_labels + "->io";

  // [t, i] and [t, n] for each level -> [t, o].
  auto operator()(const operand_of<2> auto& z, const operand_of<2> auto&... a) const
    requires(sizeof...(a) == Levels)
  {
    return std::apply(
        [&](const auto&... u) { return einsum<forward>(a..., u..., z, input, output, core); },
        experts);
  }
  auto operator()(const auto&... x) const { return not_experts_inputs(x...); }

  // Returns W_n [i, o]; n has one index for each level. Throws value_error if there is no such
  // expert.
  auto expert(std::convertible_to<extent> auto... n) const {
    return std::apply(
        [&](const auto&... u) {
          return einsum<one_expert>(slice<0>(u, static_cast<extent>(n))..., input, output, core);
        },
        experts);
  }

  static constexpr std::string_view kind = "tucker";
  static constexpr extent levels = Levels;
  using scalar = T;
  extent inputs() const { return input.shape()[0]; }
  extent outputs() const { return output.shape()[0]; }
  std::vector<extent> ranks() const { return {core.shape().begin(), core.shape().end()}; }

  // The name `core` is ours, because the authors released no Tucker layer.
  static void released(auto& experts, auto&& visit) {
    constexpr char input_labels[] = {'z', in, 0}, output_labels[] = {'o', out, 0};
    const auto level_labels = [](extent e) {
      return std::string{expert_labels[e], ring_labels[e]};
    };
    released_factors(experts, visit, level_labels, input_labels, output_labels);
    visit(released_tensor{"core", std::string(core_labels.view())}, experts.core);
  }
};

// The weight W itself: a soft mixture of linear experts.
template <extent Levels = 1, class T = float>
  requires hierarchy<Levels>
struct dense_experts {
  static_assert(Levels + 2 <= max_rank,
                "dense_experts: the weight of E levels has E + 2 axes, at most 8");

  parameter<T, Levels + 2> weight;  // n i o, one n for each level

  static constexpr subscripts each_level =
      for_levels<Levels>([](extent e) { return subscripts("") + expert_labels[e]; });

  // "tn,ti,nio->to"; with two levels "tn,tm,ti,nmio->to" (Eq. 15).
  static constexpr subscripts forward =
      coefficient_labels<Levels>() + "ti," + each_level + "io->to";

  // [t, i] and [t, n] for each level -> [t, o]. It takes N I O multiply-adds for each token.
  auto operator()(const operand_of<2> auto& z, const operand_of<2> auto&... a) const
    requires(sizeof...(a) == Levels)
  {
    return einsum<forward>(a..., z, weight);
  }
  auto operator()(const auto&... x) const { return not_experts_inputs(x...); }

  // Returns W_n [i, o]; n has one index for each level. Throws value_error if there is no such
  // expert.
  auto expert(extent n, std::convertible_to<extent> auto... m) const {
    static_assert(1 + sizeof...(m) == Levels, "expert: one index for each level");
    return as_expression(entries(weight, n, m...));
  }

  static constexpr std::string_view kind = "dense";
  static constexpr extent levels = Levels;
  using scalar = T;
  extent inputs() const { return weight.shape()[Levels]; }
  extent outputs() const { return weight.shape()[Levels + 1]; }
  std::vector<extent> ranks() const { return {}; }

  // The name `weight` is ours, because the authors released no dense layer.
  static void released(auto& experts, auto&& visit) {
    visit(released_tensor{"weight", std::string((each_level + "zo").view())}, experts.weight);
  }

 private:
  static auto entries(const auto& w, extent n, auto... m) {
    if constexpr (sizeof...(m) == 0) return slice<0>(w, n);
    else return entries(slice<0>(w, n), static_cast<extent>(m)...);
  }
};

}  // namespace fmoe
