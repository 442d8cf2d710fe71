// SPDX-License-Identifier: MIT
// How tokens and experts find each other: top-K, top-P and expert choice.
#pragma once

#include <string_view>
#include <utility>

#include <fmoe/run/compile.hpp>

namespace fmoe {

// Says how tokens and experts are assigned to each other.
struct routing {
  enum class by : std::uint8_t {
    top_k,  // each token takes the `active` experts with the greatest scores
    top_p,  // each token takes the fewest experts whose softmax over all sums to `mass`
    // each expert takes its `capacity` best tokens; if that is `all`, floor(T capacity_factor / n)
    // of T tokens
    expert_choice,
  } how = by::top_k;
  std::size_t active = 2;
  double mass = 0.6;
  std::size_t capacity = all;
  double capacity_factor = 2;
  // The papers take the softmax over the chosen experts, the released code takes softmax_of_all.
  bool rank_softmax = false;
  weighting weights =
      // Expert choice ranks the softmax over the experts instead of the scores.
      weighting::softmax;

  // [t, n] -> [t, n]: 1 for the chosen experts, 0 for the others.
  auto chosen(const operand_of<2> auto& scores) const {
    routing counting = *this;
    counting.weights = weighting::one;
    return counting(scores);
  }

  // [t, n] -> [t, n]: the weights of the experts, 0 for those that are not chosen. Throws
  // value_error for `active` > n, and for a mass outside [0, 1].
  auto operator()(const operand_of<2> auto& scores) const {
    const auto by_expert = expert_choice(scores, choose(rank_softmax, softmax(scores), scores),
                                         weights, capacity, capacity_factor);
    return choose(how == by::top_k, top_k(scores, active, weights),
                  choose(how == by::top_p, top_p(scores, mass, weights), by_expert));
  }

  static void describe(auto& route, auto& file) {
    using strategy = std::pair<std::string_view, by>;
    using weight = std::pair<std::string_view, weighting>;
    file.setting(
        "strategy", route.how,
        {strategy{"topk", by::top_k}, {"topp", by::top_p}, {"expert_choice", by::expert_choice}});
    file.setting("weighting", route.weights,
                 {weight{"paper", weighting::softmax}, {"released", weighting::softmax_of_all}});
    file.setting("select_on", route.rank_softmax,
                 {{"scores", false}, {"norms", false}, {"logits", false}, {"softmax", true}});
    file.number("K", route.active);
    file.number("P", route.mass);
    file.number("capacity_factor", route.capacity_factor);
    file.number("capacity", route.capacity);
  }
};

}  // namespace fmoe
