// SPDX-License-Identifier: MIT
// Gates: maps along the last axis, from scores to mixing weights.
#pragma once

#include <fmoe/expr/pointwise.hpp>

namespace fmoe {

template <expression E>
struct gated {
  using scalar = typename E::scalar;
  static constexpr extent rank = E::rank;

  gate fn;
  extent keep;
  E scores;

  node_id lower(graph& g) const { return g.gate_of(fn, keep, scores.lower(g)); }
};

// exp(x - max) / sum exp(x - max) of each row. A row of -inf, or with a NaN or +inf, becomes NaN; one column becomes 1.
template <operand E>
auto softmax(const E& scores) {
  static_assert(expression_t<E>::rank >= 1, "softmax: the scores have a last axis");
  return gated<expression_t<E>>{gate::softmax, 0, as_expression(scores)};
}

// Keeps the k largest scores of each row (of equal ones the lower index; NaN counts as largest) and makes the rest zero:
// a contraction over that axis then visits k entries instead of all. k = all keeps every score, k = 0 none; throws
// value_error, when planned, if k exceeds the axis.
template <operand E>
auto top_k(const E& scores, extent k) {
  static_assert(expression_t<E>::rank >= 1, "top_k: the scores have a last axis");
  return choose(k == all, scores, gated<expression_t<E>>{gate::top_k, k, as_expression(scores)});
}

// x where x >= bound, else 0; NaN stays NaN.
auto threshold(const operand auto& e, double bound) { return apply(pointwise::threshold, e, bound); }

}  // namespace fmoe
