// SPDX-License-Identifier: MIT
// Functions of each row, which is the last axis: mixing weights from scores, normalisations, norms.
#pragma once

#include <fmoe/expr/operations.hpp>

namespace fmoe::detail {

// fn of each row.
template <operand E>
auto mapped_rows(row_function fn, double parameter, const E& e) {
  return typed<expression_t<E>::rank>(
      [=](const dynamic::expression& x) { return dynamic::map_rows(fn, x, parameter); }, e);
}

}  // namespace fmoe::detail

namespace fmoe {

// exp(x - max x) / sum for each row. A row of -inf, or with a NaN or +inf, becomes NaN; a single
// column becomes 1.
template <operand E>
auto softmax(const E& scores) {
  static_assert(expression_t<E>::rank >= 1, "softmax: the scores have a last axis");
  return detail::mapped_rows(row_function::softmax, 0, scores);
}

// [(alpha - 1) x - tau]_+^(1 / (alpha - 1)) for each row, where tau makes its sum 1: sparse
// weights. alpha = 1 is softmax, the limit, and alpha = 2 is sparsemax. NaN and infinities are as
// in softmax. When it is planned, throws value_error for alpha < 1.
template <operand E>
auto entmax(const E& scores, double alpha = 1.5) {
  static_assert(expression_t<E>::rank >= 1, "entmax: the scores have a last axis");
  return detail::mapped_rows(row_function::entmax, alpha, scores);
}

// (x - mean) / sqrt(variance + epsilon) for each row, with the biased variance.
template <operand E>
auto layer_norm(const E& e, double epsilon = 1e-5) {
  static_assert(expression_t<E>::rank >= 1, "layer_norm: the operand has a last axis");
  return detail::mapped_rows(row_function::layer_norm, epsilon, e);
}

// x / sqrt(mean(x^2) + epsilon) for each row: RMSNorm as in Llama and torch.nn.RMSNorm, without its
// weight.
template <operand E>
auto rms_norm(const E& e, double epsilon = 1e-6) {
  static_assert(expression_t<E>::rank >= 1, "rms_norm: the operand has a last axis");
  return detail::mapped_rows(row_function::rms_norm, epsilon, e);
}

// x sqrt(n) / max(|x|_2, epsilon) for each row of n entries: RMSNorm as in x-transformers.
template <operand E>
auto clamped_rms_norm(const E& e, double epsilon = 1e-12) {
  static_assert(expression_t<E>::rank >= 1, "clamped_rms_norm: the operand has a last axis");
  return detail::mapped_rows(row_function::clamped_rms_norm, epsilon, e);
}

// Cuts each row of n entries into `groups` of n / groups neighbours and keeps the entries of the
// `active` groups with the greatest scores (of equal ones the earlier group; NaN counts as
// greatest); the others become -infinity. So a token's experts lie on few machines: the choice of
// DeepSeek-V3 (2024, section 2.1.2) by the sum of a group's two greatest entries, and that of
// DeepSeek-V2 (2024, section 2.2.2) by the greatest one. Throws value_error, when lowered, unless
// groups divides n and is 64 at most, and 1 <= active <= groups.
template <operand E>
auto best_groups(const E& scores, std::size_t groups, std::size_t active,
                 group_score score = group_score::sum_of_two) {
  static_assert(expression_t<E>::rank >= 1, "best_groups: the scores have a last axis");
  return detail::typed<expression_t<E>::rank>(
      [=](const dynamic::expression& x) { return dynamic::best_groups(x, groups, active, score); },
      scores);
}

// Cuts each row of n entries into `groups` of n / groups neighbours and keeps the greatest entry of
// each (of equal ones the first; NaN counts as greatest); the others become -infinity. Throws
// value_error, when lowered, unless groups divides n.
template <operand E>
auto group_max(const E& scores, std::size_t groups) {
  static_assert(expression_t<E>::rank >= 1, "group_max: the scores have a last axis");
  return detail::mapped_rows(row_function::group_max, static_cast<double>(groups), scores);
}

// Weighs the two greatest entries of each row: [.., n] -> [.., n], 0 for the others. An entry s
// stands beside the greatest one m unless (m - s) / max(|s|, m) > 2 jitter, and the weight of m is
// its softmax over those that do. Without m, the second greatest is weighed in the same way, so the
// two weights need not sum to 1. This is SparseMixer-v2 without its noise of training (Liu et al.
// 2024, GRIN, arXiv 2409.12136), the router of Phi-3.5-MoE. Of equal entries the first counts as
// the greatest, as in top_k. A row with a NaN or +infinity, or with less than two entries above
// -infinity, becomes NaN; numbers of 16 bits are compared as floats. Gradients hold constant which
// entries stand beside which. When it is planned, throws value_error for a row of one entry and
// for a jitter outside [0, 1).
template <operand E>
auto sparse_mixer(const E& scores, double jitter = 0.01) {
  static_assert(expression_t<E>::rank >= 1, "sparse_mixer: the scores have a last axis");
  return detail::mapped_rows(row_function::sparse_mixer, jitter, scores);
}

// Returns one number for each row: its L1, L2 or maximum norm, or its mean.
template <operand E>
auto norm(row_norm which, const E& e) {
  static_assert(expression_t<E>::rank >= 1, "norm: the operand has a last axis");
  return detail::typed<expression_t<E>::rank - 1>(
      [=](const dynamic::expression& x) { return dynamic::norm(which, x); }, e);
}

// Returns the mean of each row: [..., n] -> [...].
template <operand E>
auto mean(const E& e) {
  return norm(row_norm::mean, e);
}

// [...] -> [..., n]: a row of n equal numbers for each number.
//
//   const auto centred = x - repeat(mean(x), 16);
template <operand E>
auto repeat(const E& e, std::size_t n) {
  static_assert(expression_t<E>::rank < detail::max_rank, "repeat: a result has at most 8 axes");
  return detail::typed<expression_t<E>::rank + 1>(
      [=](const dynamic::expression& x) { return dynamic::repeat(x, n); }, e);
}

// The softmax over the entries of each row that reach min(max of the row, its bound), and 0 for the
// others. The axes of the bound are the last ones before the row.
template <operand E, operand B>
auto bounded_softmax(const E& scores, const B& bound) {
  static_assert(expression_t<B>::rank < expression_t<E>::rank,
                "bounded_softmax: the bound has one number for each row of the scores");
  return detail::typed<expression_t<E>::rank>(dynamic::bounded_softmax, scores, bound);
}

}  // namespace fmoe
