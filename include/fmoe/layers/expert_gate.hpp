// SPDX-License-Identifier: MIT
// The gate of a hierarchy of experts: a_e = phi(norm(x G_e)) for each level e, where phi is entmax
// or softmax.
#pragma once

#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include <fmoe/layers/batch_norm.hpp>
#include <fmoe/layers/experts.hpp>

namespace fmoe {

// Labels: t token, i input, n expert. If a level has running statistics, a batch norm with them
// normalises its scores; otherwise a layer norm over its experts does so if `layer_norm` is true.
// Neither has weights. In `training` a batch norm takes the statistics of the tokens of a call, and
// gradients go through them.
template <std::size_t Levels = 1, class T = float>
struct expert_gate {
  std::array<parameter<T, 2>, Levels> projections;     // i n
  std::array<parameter<T, 1>, Levels> means = {};      // n, running
  std::array<parameter<T, 1>, Levels> variances = {};  // n, running
  bool layer_norm = true;
  double alpha = 1.5;  // alpha of entmax; 1 is softmax
  bool training = false;

  static constexpr double epsilon = 1e-5;

  std::size_t inputs() const { return projections[0].shape()[0]; }

  // Returns the number of experts of each level.
  std::vector<std::size_t> experts() const {
    std::vector<std::size_t> counts;
    for (const auto& p : projections) counts.push_back(p.shape()[1]);
    return counts;
  }

  // True if the gate has running statistics. Throws value_error if some levels have them and others
  // do not, or if a variance is negative or not finite.
  bool batch_norm() const {
    std::size_t held = 0;
    for (std::size_t e = 0; e < Levels; ++e) {
      held += means[e].empty() ? 0U : 1U;
      held += variances[e].empty() ? 0U : 1U;
      for (std::size_t n = 0; n < variances[e].size(); ++n) {
        const auto variance = detail::convert<double>(variances[e](n));
        detail::expects<value_error>(std::isfinite(variance) && variance >= 0,
                                     "[batch norm] the running variance of expert ", n,
                                     " of level ", e, " is ", variance);
      }
    }
    detail::expects<value_error>(held == 0 || held == 2 * Levels, "[batch norm] there are ", held,
                                 " running statistics and ", 2 * Levels,
                                 " are needed, means and variances, or none");
    return held != 0;
  }

  // [t, i] -> [t, n]: norm(x G) of one level. Throws value_error as batch_norm does.
  template <std::size_t Level = 0>
  auto scores(const operand auto& x) const {
    static_assert(Level < Levels, "expert_gate: levels are counted from 0");
    const auto s = einsum<"ti,in->tn">(x, projections[Level]);
    const auto centred = s - detail::batch_mean<"tn->n">(s);
    const auto by_batch =
        centred * inverse_sqrt(detail::batch_variance<"tn->n">(centred) + epsilon);
    const auto by_running = (s - means[Level]) * inverse_sqrt(variances[Level] + epsilon);
    return choose(batch_norm(), choose(training, by_batch, by_running),
                  choose(layer_norm, fmoe::layer_norm(s, epsilon), s));
  }

  // [t, i] -> [n], [n]: the mean of each expert's scores over the tokens, and their variance with
  // the divisor T - 1, which running statistics take.
  template <std::size_t Level = 0>
  auto batch_statistics(const operand auto& x) const {
    const auto s = einsum<"ti,in->tn">(x, projections[Level]);
    const auto mean = detail::batch_mean<"tn->n">(s);
    return std::tuple{mean, detail::unbiased_variance<"tn->n">(s - mean)};
  }

  // [t, i] -> [t, n]: a of one level. A row sums to 1. A single expert has exactly the coefficient
  // 1; scores that are all -inf give NaN.
  template <std::size_t Level = 0>
  auto coefficients(const operand auto& x) const {
    return entmax(scores<Level>(x), alpha);
  }

  // Returns the coefficients of every level, as a tuple.
  auto operator()(const operand auto& x) const {
    return [&]<std::size_t... Level>(std::index_sequence<Level...>) {
      return std::tuple{coefficients<Level>(x)...};
    }(std::make_index_sequence<Levels>());
  }

  static void released(auto& gate, auto&& visit) {
    for (std::size_t e = 0; e < Levels; ++e) {
      const std::string level = std::to_string(e), n(1, detail::expert_labels[e]);
      visit(released_name{"projs." + level, presence::required, 'i' + n}, gate.projections[e]);
      visit(statistic({"bn." + level + ".running_mean", presence::optional, n}), gate.means[e]);
      visit(statistic({"bn." + level + ".running_var", presence::optional, n}), gate.variances[e]);
    }
  }

  // The settings of the gate in the metadata.
  static void describe(auto& gate, auto& file) {
    const bool batch_norm = gate.batch_norm();
    file.setting("activation", gate.alpha,
                 {{"entmax15", 1.5}, {"entmax", 1.5}, {"softmax", 1}, {"sparsemax", 2}});
    file.needed("activation");
    if (!batch_norm) {
      file.setting("norm", gate.layer_norm, {{"layer", true}, {"none", false}, {"batch", true}});
      file.needed("norm");
    }
    file.fact("norm", batch_norm ? "batch" : gate.layer_norm ? "layer" : "none");
  }
};

}  // namespace fmoe
