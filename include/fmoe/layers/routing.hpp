// SPDX-License-Identifier: MIT
// How tokens and experts find each other: top-K, top-P and expert choice.
#pragma once

#include <string_view>
#include <utility>

#include <fmoe/run/compile.hpp>

namespace fmoe {

// What is made of the scores of a token's experts.
enum class score_function : std::uint8_t { none, sigmoid, softmax, sparse_mixer };

// Says how tokens and experts are assigned to each other. Top-K has the forms of released models:
// scores, or their sigmoids, weigh the experts; a bias that balances the experts' load may take
// part in their ranking alone, and the experts may come from the best groups alone (DeepSeek-V3,
// 2024, section 2.1.2; DeepSeek-V2, 2024, section 2.2.2). A sparse mixer weighs two experts of a
// token (Phi-3.5-MoE: `sparse_mixer` in expr/rows.hpp).
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
  bool rank_softmax = false;  // expert choice ranks the softmax over the experts, not the scores
  // The papers take the softmax over the chosen experts, the released code takes softmax_of_all.
  weighting weights = weighting::softmax;
  // Of top-K:
  score_function scoring = score_function::none;  // what weighs, and ranks with a balance or groups
  std::size_t groups = 1, active_groups = 1;
  group_score score_of_group = group_score::sum_of_two;
  double jitter = 0.01;  // of a sparse mixer: what stands beside the greatest score

  // [t, n] -> [t, n]: 1 for the chosen experts, 0 for the others.
  auto chosen(const operand_of<2> auto& scores) const { return chosen(scores, {}); }
  template <class T = float>
  auto chosen(const operand_of<2> auto& scores, const parameter<T, 1>& balance) const {
    return chosen(scores, balance, !balance.empty());
  }
  auto chosen(const operand_of<2> auto& scores, const operand_of<1> auto& balance,
              bool is_balanced) const {
    routing counting = *this;
    counting.weights = weighting::one;
    return counting(scores, balance, is_balanced);
  }

  // [t, n] -> [t, n]: the weights of the experts, 0 for those that are not chosen. Throws
  // value_error for `active` > n, and for a mass outside [0, 1]. `balance` [n] is added to what
  // ranks the experts of a token, and may be empty. Throws value_error for a sparse mixer unless
  // `active` is 2 and `weights` weighting::score (or one), without a balance and without groups.
  auto operator()(const operand_of<2> auto& scores) const { return (*this)(scores, {}); }
  template <class T = float>
  auto operator()(const operand_of<2> auto& scores, const parameter<T, 1>& balance) const {
    return (*this)(scores, balance, !balance.empty());
  }
  // The same for a balance of any expression, which takes part if `is_balanced`.
  auto operator()(const operand_of<2> auto& scores, const operand_of<1> auto& balance,
                  bool is_balanced) const {
    const bool is_mixer = how == by::top_k && scoring == score_function::sparse_mixer,
               keeps_weights = weights == weighting::score || weights == weighting::one;
    detail::expects<value_error>(
        !is_mixer || (active == 2 && keeps_weights && groups == 1 && !is_balanced),
        "[routing] a sparse mixer weighs two experts by itself: `active` is 2 and `weights` score, "
        "without groups and without a balance");
    const auto smooth =
        choose(scoring == score_function::sigmoid, sigmoid(scores), softmax(scores));
    const auto weighed = choose(scoring == score_function::none, scores,
                                choose(is_mixer, sparse_mixer(scores, jitter), smooth));
    const auto balanced = add_if(is_balanced, weighed, balance);
    const bool is_plain = groups == 1 && !is_balanced;
    const auto ranked =
        choose(is_plain, scores,
               choose(groups == 1, balanced,
                      best_groups(balanced, groups, active_groups, score_of_group)));
    const auto by_expert = expert_choice(scores, choose(rank_softmax, softmax(scores), scores),
                                         weights, capacity, capacity_factor);
    return choose(how == by::top_k, top_k(weighed, ranked, active, weights),
                  choose(how == by::top_p, top_p(scores, mass, weights), by_expert));
  }

  static void describe(auto& route, auto& file) {
    using strategy = std::pair<std::string_view, by>;
    using weight = std::pair<std::string_view, weighting>;
    file.setting(
        "strategy", route.how,
        {strategy{"topk", by::top_k}, {"topp", by::top_p}, {"expert_choice", by::expert_choice}});
    file.setting("weighting", route.weights,
                 {weight{"paper", weighting::softmax},
                  {"released", weighting::softmax_of_all},
                  {"normalized", weighting::normalized},
                  {"score", weighting::score}});
    file.setting("select_on", route.rank_softmax,
                 {{"scores", false}, {"norms", false}, {"logits", false}, {"softmax", true}});
    if (route.how == by::top_k) file.needed("K");
    if (route.how == by::top_p) file.needed("P");
    file.number("K", route.active);
    file.number("P", route.mass);
    file.number("capacity_factor", route.capacity_factor);
    file.number("capacity", route.capacity);
    if (route.how == by::expert_choice && route.capacity == all) file.needed("capacity_factor");
    using function = std::pair<std::string_view, score_function>;
    file.setting(
        "score_function", route.scoring,
        {function{"none", score_function::none}, function{"sigmoid", score_function::sigmoid},
         function{"softmax", score_function::softmax},
         function{"sparse_mixer", score_function::sparse_mixer}},
        score_function::none);
    file.number("groups", route.groups, 1);
    file.number("active_groups", route.active_groups, 1);
    file.setting("group_score", route.score_of_group,
                 {{"sum_of_two", group_score::sum_of_two}, {"greatest", group_score::greatest}},
                 group_score::sum_of_two);
    file.number("jitter", route.jitter, 0.01);
  }
};

}  // namespace fmoe
