// SPDX-License-Identifier: MIT
// Functions of each row, which is the last axis: mixing weights from scores, selections,
// normalisations and norms.
#pragma once

#include <optional>

#include <fmoe/expr/pointwise.hpp>

namespace fmoe {

template <expression E>
struct gated {
  using scalar = typename E::scalar;

  gate fn;
  double parameter;
  E arg;

  static constexpr extent rank = E::rank;

  ir::node_id lower(ir::graph& g) const { return g.gate_of(fn, parameter, arg.lower(g)); }
};

template <expression E>
struct row_norm : gated<E> {
  static constexpr extent rank = E::rank - 1;
};

// exp(x - max x) / sum for each row. A row of -inf, or with a NaN or +inf, becomes NaN; a single
// column becomes 1.
template <operand E>
auto softmax(const E& scores) {
  static_assert(expression_t<E>::rank >= 1, "softmax: the scores have a last axis");
  return gated<expression_t<E>>{gate::softmax, 0, as_expression(scores)};
}

// [(alpha - 1) x - tau]_+^(1 / (alpha - 1)) for each row, where tau makes its sum 1: sparse
// weights. alpha = 1 is softmax, the limit, and alpha = 2 is sparsemax. NaN and infinities are as
// in softmax. When it is planned, throws value_error for alpha < 1.
template <operand E>
auto entmax(const E& scores, double alpha = 1.5) {
  static_assert(expression_t<E>::rank >= 1, "entmax: the scores have a last axis");
  return gated<expression_t<E>>{alpha == 1 ? gate::softmax : gate::entmax, alpha,
                                as_expression(scores)};
}

// (x - mean) / sqrt(variance + epsilon) for each row, with the biased variance.
template <operand E>
auto layer_norm(const E& e, double epsilon = 1e-5) {
  static_assert(expression_t<E>::rank >= 1, "layer_norm: the operand has a last axis");
  return gated<expression_t<E>>{gate::layer_norm, epsilon, as_expression(e)};
}

// x sqrt(n) / max(|x|_2, epsilon) for each row of n entries.
template <operand E>
auto rms_norm(const E& e, double epsilon = 1e-12) {
  static_assert(expression_t<E>::rank >= 1, "rms_norm: the operand has a last axis");
  return gated<expression_t<E>>{gate::rms_norm, epsilon, as_expression(e)};
}

// Returns one number for each row, its L1, L2 or maximum norm: `which` is gate::l1_norm, l2_norm or
// max_norm.
template <operand E>
auto norm(gate which, const E& e) {
  static_assert(expression_t<E>::rank >= 1, "norm: the operand has a last axis");
  return row_norm<expression_t<E>>{{which, 0, as_expression(e)}};
}

template <expression E, expression B>
struct bounded_gate {
  using scalar = arithmetic_t<typename E::scalar, typename B::scalar>;
  static constexpr extent rank = E::rank;
  static_assert(B::rank < E::rank,
                "bounded_softmax: the bound has one number for each row of the scores");

  E scores;
  B bound;

  ir::node_id lower(ir::graph& g) const {
    const ir::node_id x = scores.lower(g);
    return g.gate_of(gate::bounded_softmax, 0, x, bound.lower(g));
  }
};

// The softmax over the entries of each row that reach min(max of the row, its bound), and 0 for the
// others. The axes of the bound are the last ones before the row.
template <operand E, operand B>
auto bounded_softmax(const E& scores, const B& bound) {
  return bounded_gate<expression_t<E>, expression_t<B>>{as_expression(scores),
                                                        as_expression(bound)};
}

template <expression E>
struct selection {
  using scalar = typename E::scalar;
  static constexpr extent rank = E::rank;

  selection_rule rule;
  E scores;

  ir::node_id lower(ir::graph& g) const {
    const ir::node_id s = scores.lower(g);
    return rule == selection_rule{selection_rule::kind::top_k, all} ? s : g.select(rule, s);
  }
};

// Keeps the k largest scores of each row and sets the others to zero; among equal scores the lower
// index is kept, and NaN counts as the largest. A contraction over that axis then visits k entries
// instead of all. k = all keeps every score, k = 0 none. When it is planned, throws value_error if
// k exceeds the axis.
template <operand E, class K>
auto top_k(const E& scores, K k, weighting weights = weighting::score) {
  static_assert(expression_t<E>::rank >= 1, "top_k: the scores have a last axis");
  static_assert(std::integral<K> && !std::is_same_v<K, bool>, "top_k: K is a whole number");
  if constexpr (std::integral<K>) {
    expects<value_error>(std::in_range<extent>(k), "[top_k] K is ", k,
                         ": fmoe::all keeps every score");
    return selection<expression_t<E>>{
        {selection_rule::kind::top_k, static_cast<extent>(k), 0, weights}, as_expression(scores)};
  } else {
    return refused();
  }
}
template <class E, class... More>
  requires(!operand<E>)
refused top_k(const E&, const More&...) {
  static_assert(never<E>, "top_k: the scores, a tensor or an expression, come first, then K");
  return {};
}

// Keeps the fewest of the largest scores of each row whose softmax over the whole row sums to
// `mass` or more, but at least one. Order and zeros are as in top_k. When it is planned, throws
// value_error unless 0 <= mass <= 1.
template <operand E>
auto top_p(const E& scores, double mass, weighting weights) {
  static_assert(expression_t<E>::rank >= 1, "top_p: the scores have a last axis");
  return selection<expression_t<E>>{{selection_rule::kind::top_p, 0, mass, weights},
                                    as_expression(scores)};
}

// Returns the scores themselves; a contraction over their last axis then visits only the entries of
// each row that are not 0.
template <operand E>
auto nonzeros(const E& scores) {
  static_assert(expression_t<E>::rank >= 1, "nonzeros: the scores have a last axis");
  return selection<expression_t<E>>{{selection_rule::kind::nonzero}, as_expression(scores)};
}

template <expression E, expression R>
struct expert_selection {
  using scalar = arithmetic_t<typename E::scalar, typename R::scalar>;
  static constexpr extent rank = E::rank;
  static_assert(E::rank == 2 && R::rank == 2,
                "expert_choice: scores and ranking are [token, expert]");

  selection_rule rule;
  E scores;
  R ranked;

  ir::node_id lower(ir::graph& g) const {
    const ir::node_id x = scores.lower(g);
    return g.select(rule, x, ranked.lower(g));
  }
};

// [t, n] -> [t, n]: each expert keeps the `capacity` tokens with the greatest entries of `ranked`
// in its column, among equal ones the earlier token; NaN is the greatest. If `capacity` is `all`,
// it keeps max(1, min(T, floor(T factor / n))) of T tokens. Then the scores of each token are
// weighted. Only here do rows depend on each other: a result depends on the tokens that one call
// has.
template <operand E, operand R>
auto expert_choice(const E& scores, const R& ranked, weighting weights, extent capacity = all,
                   double factor = 2) {
  const selection_rule rule{selection_rule::kind::expert_choice, capacity, 0, weights, factor};
  return expert_selection<expression_t<E>, expression_t<R>>{rule, as_expression(scores),
                                                            as_expression(ranked)};
}

template <expression E>
struct pair_selection : selection<E> {
  static_assert(E::rank >= 3, "product_top_k: the scores are [token, ..., 2, s]");
  static constexpr extent rank = E::rank - 1;
};

// Product keys, [..., 2, s] -> [..., s^2]: from two lists of scores a and b, takes the `each`
// largest of both, and keeps the k largest of the sums a[i] + b[j] of these, at e = i s + j. Among
// equal sums the lowest e is kept, among equal scores the lowest i or j; NaN counts as the largest.
// With each >= k these are the k largest of all s^2 sums. Throws shape_error unless there are two
// lists, and, when it is lowered, value_error for each > s, k > each^2 and s > 65,535.
template <operand E>
auto product_top_k(const E& scores, extent k, extent each, weighting weights = weighting::softmax) {
  const selection_rule rule{selection_rule::kind::product_top_k, k, 0, weights, 0, each};
  return pair_selection<expression_t<E>>{{rule, as_expression(scores)}};
}

// x where x >= bound, else 0; NaN stays NaN.
auto threshold(const operand auto& e, double bound) {
  return apply(pointwise::threshold, e, bound);
}

}  // namespace fmoe
