// SPDX-License-Identifier: MIT
// The losses of the papers, as expressions. The first axis of what they take counts tokens. A loss
// of each token, [t], counts by its mean; one of all tokens is a single number. compile_gradients
// takes both, and sums of them.
#pragma once

#include <fmoe/expr/expression.hpp>

namespace fmoe::dynamic::losses {

// See those of fmoe::losses. Throw shape_error for operands of other numbers of axes.
expression mse(const expression& y, const expression& target);
expression nmse(const expression& y, const expression& target);
expression normalized_error(const expression& y, const expression& target);
expression authors_mse(const expression& y, const expression& target);
expression fvu(const expression& y, const expression& target);
expression uniformity(const expression& g1, const expression& g2, double floor = 1e-10);
expression ambiguity(const expression& g1, const expression& g2);
expression load_balance(const expression& coefficients, const expression& scores);
expression router_z(const expression& scores);
expression entropy(const expression& scores);
expression l1(const expression& coefficients);
expression l1(const expression& coefficients, const expression& weights);
expression auxk(const expression& y, const expression& target, const expression& units,
                const expression& dead, const expression& decoder, std::size_t k);

}  // namespace fmoe::dynamic::losses

namespace fmoe::losses {

// [t, o], [t, o] -> [t]: the mean of (y - target)^2 over the outputs of a token.
template <operand Y, operand D>
auto mse(const Y& y, const D& target) {
  return detail::typed<1>(dynamic::losses::mse, y, target);
}

// [t, o], [t, o] -> [t]: |y - target|^2 / |target|^2, the normalised error of MxD's Fig. 10
// (Oldfield et al. 2025).
template <operand Y, operand D>
auto nmse(const Y& y, const D& target) {
  return detail::typed<1>(dynamic::losses::nmse, y, target);
}

// [t, o], [t, o] -> [t]: |y - target|^2 / |target|, the loss of MxD's Sec. 3.1, whose divisor has
// no square.
template <operand Y, operand D>
auto normalized_error(const Y& y, const D& target) {
  return detail::typed<1>(dynamic::losses::normalized_error, y, target);
}

// [t, o], [t, o] -> [t]: normalized_error / o, the loss in the MxD authors' code.
template <operand Y, operand D>
auto authors_mse(const Y& y, const D& target) {
  return detail::typed<1>(dynamic::losses::authors_mse, y, target);
}

// [t, o], [t, o] -> one number: the fraction of variance unexplained, the sum of |y - target|^2 by
// that of |target - m|^2, where m [o] is the mean target of the tokens.
template <operand Y, operand D>
auto fvu(const Y& y, const D& target) {
  return detail::typed<0>(dynamic::losses::fvu, y, target);
}

// [t, p, s], [t, p, s] -> one number: Monet's uniformity loss (Park et al. 2024, Eq. 16). With m1
// [p, s] and m2 the means of g1 and g2 over the tokens, it is -(mean log m1 + mean log m2) / 2. As
// the equation is printed it has no mean over tokens; the values of the paper's Table 7 have. It is
// log s at least, where all are used alike. A mean below `floor`, such as that of an expert that no
// token keeps, counts as `floor`, and has no gradient.
template <operand_of<3> G1, operand_of<3> G2>
auto uniformity(const G1& g1, const G2& g2, double floor = 1e-10) {
  return detail::typed<0>(
      [floor](const dynamic::expression& a, const dynamic::expression& b) {
        return dynamic::losses::uniformity(a, b, floor);
      },
      g1, g2);
}

// [t, p, s], [t, p, s] -> [t]: Monet's ambiguity loss (Eq. 17): 1 less the mean, over heads p and
// both halves, of the greatest probability.
template <operand_of<3> G1, operand_of<3> G2>
auto ambiguity(const G1& g1, const G2& g2) {
  return detail::typed<1>(dynamic::losses::ambiguity, g1, g2);
}

// [t, n], [t, n] -> one number: n sum_n f_n P_n, where f_n is the share of the tokens whose
// coefficient n is not 0, and P_n the mean of the softmax of the scores (Fedus et al. 2022, Switch
// Transformers, Eqs. 4 to 6; AoE, Lv et al. 2025, Eqs. 2 and 6, with the norms as scores). f has no
// gradient. The papers weigh it by 0.01.
template <operand_of<2> A, operand_of<2> S>
auto load_balance(const A& coefficients, const S& scores) {
  return detail::typed<0>(dynamic::losses::load_balance, coefficients, scores);
}

// [t, n] -> [t]: (log sum_n exp(score_n))^2, the router z-loss (Zoph et al. 2022, ST-MoE, Eq. 5).
template <operand_of<2> S>
auto router_z(const S& scores) {
  return detail::typed<1>(dynamic::losses::router_z, scores);
}

// [t, n] -> [t]: -sum_n p_n log p_n in nats, where p is the softmax of the scores: AoE's Eq. 8,
// which keeps the layers of top-p from choosing all experts (its Sec. 4, with the weight 1e-4).
template <operand_of<2> S>
auto entropy(const S& scores) {
  return detail::typed<1>(dynamic::losses::entropy, scores);
}

// [t, n] -> [t]: sum_n |a_n|. With weights [n], sum_n |a_n| w_n: those of the MxD authors' code are
// the norms of the decoder's rows.
template <operand A>
auto l1(const A& coefficients) {
  return detail::typed<1>([](const dynamic::expression& a) { return dynamic::losses::l1(a); },
                          coefficients);
}
template <operand_of<2> A, operand_of<1> W>
auto l1(const A& coefficients, const W& weights) {
  return detail::typed<1>([](const dynamic::expression& a,
                             const dynamic::expression& w) { return dynamic::losses::l1(a, w); },
                          coefficients, weights);
}

// AuxK (Gao et al. 2024, Scaling and evaluating sparse autoencoders, A.2): the k greatest of the
// units that are dead model what y leaves over, and so come back to life. y, target [t, o], units
// [t, n] before the selection and not negative, dead [n], 1 for dead units and 0 for the others,
// decoder [n, o] -> [t]: the mean of (e - z D)^2 over the outputs, where e = target - y has no
// gradient and z are the k greatest dead units.
template <operand_of<2> Y, operand_of<2> D, operand_of<2> U, operand_of<1> N, operand_of<2> W>
auto auxk(const Y& y, const D& target, const U& units, const N& dead, const W& decoder,
          std::size_t k) {
  return detail::typed<1>([k](const auto&... es) { return dynamic::losses::auxk(es..., k); }, y,
                          target, units, dead, decoder);
}

}  // namespace fmoe::losses

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/gradients/losses-inl.hpp>
#endif
