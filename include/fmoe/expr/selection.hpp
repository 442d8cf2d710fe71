// SPDX-License-Identifier: MIT
// Selections: which scores of a row, the last axis, are kept, and with which weights. A contraction
// over a selection visits the kept entries alone.
#pragma once

#include <utility>

#include <fmoe/expr/operations.hpp>

namespace fmoe::detail {

// What a selection keeps, as two expressions.
template <expression E>
struct kept_pair {
  E values, indices;
};

}  // namespace fmoe::detail

namespace fmoe {

// Keeps the k largest scores of each row (of equal ones the lower index; NaN counts as largest) and
// makes the rest zero: a contraction over that axis then visits k entries instead of all. k = all
// keeps every score, k = 0 none; throws value_error, when planned, if k exceeds the axis.
//
//   const auto mixture = einsum<"tn,no->to">(top_k(x, 2, weighting::softmax), w);
template <operand E, class K>
auto top_k(const E& scores, K k, weighting weights = weighting::score) {
  static_assert(expression_t<E>::rank >= 1, "top_k: the scores have a last axis");
  static_assert(std::integral<K> && !std::is_same_v<K, bool>, "top_k: K is a whole number");
  if constexpr (std::integral<K>) {
    detail::expects<value_error>(std::in_range<std::size_t>(k), "[top_k] K is ", k,
                                 ": fmoe::all keeps every score");
    return detail::typed<expression_t<E>::rank>(
        [=](const dynamic::expression& x) {
          return dynamic::top_k(x, static_cast<std::size_t>(k), weights);
        },
        scores);
  } else {
    return detail::refused();
  }
}
template <class E, class... More>
  requires(!operand<E>)
detail::refused top_k(const E&, const More&...) {
  static_assert(detail::never<E>,
                "top_k: the scores, a tensor or an expression, come first, then K");
  return {};
}

// The same, where other numbers of the scores' shape rank the entries and the scores are what is
// kept and weighted: DeepSeek-V3 ranks experts by a score and a bias that balances their load, and
// weighs them by the score alone.
template <operand E, operand R>
auto top_k(const E& scores, const R& ranked, std::size_t k, weighting weights = weighting::score) {
  static_assert(expression_t<E>::rank == expression_t<R>::rank,
                "top_k: scores and what ranks them have the same axes");
  return detail::typed<expression_t<E>::rank>(
      [=](const dynamic::expression& x, const dynamic::expression& by) {
        return dynamic::top_k(x, by, k, weights);
      },
      scores, ranked);
}

// Keeps the fewest of the largest scores of each row whose softmax over the whole row sums to
// `mass` or more, at least one; order and zeros as top_k's. Throws value_error, when planned,
// unless 0 <= mass <= 1.
template <operand E>
auto top_p(const E& scores, double mass, weighting weights) {
  static_assert(expression_t<E>::rank >= 1, "top_p: the scores have a last axis");
  return detail::typed<expression_t<E>::rank>(
      [=](const dynamic::expression& x) { return dynamic::top_p(x, mass, weights); }, scores);
}

// The scores themselves: a contraction over their last axis then visits only those of each row that
// are not 0.
template <operand E>
auto nonzeros(const E& scores) {
  static_assert(expression_t<E>::rank >= 1, "nonzeros: the scores have a last axis");
  return detail::typed<expression_t<E>::rank>(dynamic::nonzeros, scores);
}

// The scores that are above their thresholds, a number for each column, and 0 elsewhere: JumpReLU
// (Rajamanoharan et al. 2024, Jumping Ahead). A contraction over the last axis visits the others
// alone. NaN stays. Gradients hold the thresholds constant.
//
//   const tensor<float, 1> thresholds({w.shape()[1]});
//   const auto z = jump_relu(relu(einsum<"ti,io->to">(x, w)), thresholds);
template <operand E, operand B>
auto jump_relu(const E& scores, const B& thresholds) {
  static_assert(expression_t<B>::rank >= 1 && expression_t<B>::rank <= expression_t<E>::rank,
                "jump_relu: the thresholds have the last axes of the scores");
  return detail::typed<expression_t<E>::rank>(dynamic::jump_relu, scores, thresholds);
}

// [t, n] -> [t, n]: each expert keeps the `capacity` tokens that `ranked` has greatest in its
// column (of equal ones the earlier token, NaN greatest), max(1, min(T, floor(T factor / n))) of T
// tokens if that is `all`; then each token's scores are weighted. Here alone rows depend on each
// other: a result depends on which tokens one call brings together.
template <operand E, operand R>
auto expert_choice(const E& scores, const R& ranked, weighting weights, std::size_t capacity = all,
                   double factor = 2) {
  static_assert(expression_t<E>::rank == 2 && expression_t<R>::rank == 2,
                "expert_choice: scores and ranking are [token, expert]");
  return detail::typed<2>(
      [=](const dynamic::expression& x, const dynamic::expression& by) {
        return dynamic::expert_choice(x, by, weights, capacity, factor);
      },
      scores, ranked);
}

// Product keys: of two lists of scores a, b, [..., 2, s] -> [..., s^2], the k largest of the sums
// a[i] + b[j] of the `each` largest of both, at e = i s + j (of equal sums the lowest e, of equal
// scores the lowest i or j; NaN counts as largest). With each >= k these are the k largest of all
// s^2 sums. Throws shape_error unless there are two lists, and value_error, when lowered, for each
// > s, k > each^2, s > 65,535 and softmax_of_all.
template <operand E>
auto product_top_k(const E& scores, std::size_t k, std::size_t each,
                   weighting weights = weighting::softmax) {
  static_assert(expression_t<E>::rank >= 3, "product_top_k: the scores are [token, ..., 2, s]");
  return detail::typed<expression_t<E>::rank - 1>(
      [=](const dynamic::expression& x) { return dynamic::product_top_k(x, k, each, weights); },
      scores);
}

// The entries that top_k or product_top_k keeps, [..., n] -> [..., K], as two expressions,
// `values` and `indices` along the last axis, by ascending index. Entries that are 0 are not
// kept: a row with fewer than K others ends with values of 0 and indices of -1. A float holds
// indices up to 2^24 exactly. As results of a compiled layer they take K numbers a row instead of
// n. Throws value_error, when lowered, for any other operand.
template <operand E>
auto kept(const E& selection) {
  static_assert(expression_t<E>::rank >= 1, "kept: the selection has a last axis");
  using X = detail::expr_of<expression_t<E>::rank, E>;
  return detail::kept_pair<X>{detail::typed<X::rank>(dynamic::kept_values, selection),
                              detail::typed<X::rank>(dynamic::kept_indices, selection)};
}

}  // namespace fmoe
