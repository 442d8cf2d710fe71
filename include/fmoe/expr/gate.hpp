// SPDX-License-Identifier: MIT
// Functions of each row, which is the last axis: mixing weights from scores, normalisations, norms.
#pragma once

#include <fmoe/expr/expression.hpp>

namespace fmoe::detail {

template <expression E>
struct gated : expression_base {
  using scalar = typename E::scalar;

  gate fn;
  double parameter;
  E arg;

  static constexpr extent rank = E::rank;

  ir::node_id lower(ir::graph& g) const { return g.gate_of(fn, parameter, arg.lower(g)); }
};

template <expression E>
struct norm_of_rows : gated<E> {
  static constexpr extent rank = E::rank - 1;
};

}  // namespace fmoe::detail

namespace fmoe {

// exp(x - max x) / sum of each row. A row of -inf, or with a NaN or +inf, becomes NaN; one column
// becomes 1.
template <operand E>
auto softmax(const E& scores) {
  static_assert(expression_t<E>::rank >= 1, "softmax: the scores have a last axis");
  return detail::gated<expression_t<E>>{{}, gate::softmax, 0, as_expression(scores)};
}

// [(alpha - 1) x - tau]_+^(1 / (alpha - 1)) of each row, with the tau that makes its sum 1: sparse
// weights, softmax in the limit alpha = 1, sparsemax for alpha = 2. NaN and infinities as
// softmax's. Throws value_error, when planned, for alpha < 1.
template <operand E>
auto entmax(const E& scores, double alpha = 1.5) {
  static_assert(expression_t<E>::rank >= 1, "entmax: the scores have a last axis");
  return detail::gated<expression_t<E>>{
      {}, alpha == 1 ? gate::softmax : gate::entmax, alpha, as_expression(scores)};
}

// (x - mean) / sqrt(variance + epsilon) of each row, with the biased variance.
template <operand E>
auto layer_norm(const E& e, double epsilon = 1e-5) {
  static_assert(expression_t<E>::rank >= 1, "layer_norm: the operand has a last axis");
  return detail::gated<expression_t<E>>{{}, gate::layer_norm, epsilon, as_expression(e)};
}

// x sqrt(n) / max(|x|_2, epsilon) of each row of n.
template <operand E>
auto rms_norm(const E& e, double epsilon = 1e-12) {
  static_assert(expression_t<E>::rank >= 1, "rms_norm: the operand has a last axis");
  return detail::gated<expression_t<E>>{{}, gate::rms_norm, epsilon, as_expression(e)};
}

// One number for each row, its L1, L2 or maximum norm: which == gate::l1_norm, l2_norm or max_norm.
template <operand E>
auto norm(gate which, const E& e) {
  static_assert(expression_t<E>::rank >= 1, "norm: the operand has a last axis");
  return detail::norm_of_rows<expression_t<E>>{{{}, which, 0, as_expression(e)}};
}

}  // namespace fmoe

namespace fmoe::detail {

template <expression E, expression B>
struct bounded_gate : expression_base {
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

}  // namespace fmoe::detail

namespace fmoe {

// The softmax over the entries of each row that reach min(max of the row, its bound), 0 elsewhere.
// The bound's axes are the last ones before the row.
template <operand E, operand B>
auto bounded_softmax(const E& scores, const B& bound) {
  return detail::bounded_gate<expression_t<E>, expression_t<B>>{
      {}, as_expression(scores), as_expression(bound)};
}

}  // namespace fmoe
