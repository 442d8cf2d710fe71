// SPDX-License-Identifier: MIT
// What losses.hpp declares.
#pragma once

#include <string>

#include <fmoe/expr/operations-inl.hpp>
#include <fmoe/gradients/gradient.hpp>
#include <fmoe/gradients/losses.hpp>
#include <fmoe/ir/algebra.hpp>

namespace fmoe::dynamic::losses::terms {

using detail::expects;

inline void expects_axes(const char* loss, const expression& e, std::size_t least,
                         std::size_t most = detail::max_rank) {
  expects<shape_error>(e.rank() >= least && e.rank() <= most, "[", loss, "] an operand has ",
                       e.rank(), " axes, and ", least, least == most ? "" : " or more",
                       " are expected");
}
inline void expects_pair(const char* loss, const expression& a, const expression& b,
                         std::size_t least, std::size_t most = detail::max_rank) {
  expects_axes(loss, a, least, most);
  expects_axes(loss, b, a.rank(), a.rank());
}

// A letter for each axis, of which the first is that of the tokens.
inline std::string letters(const expression& e) {
  return std::string("tabcdefg").substr(0, e.rank());
}

// [t, ...] -> [...]: the sum over the tokens; and their number, which the numbers of e do not
// change, as one number.
inline expression sum_over_tokens(const expression& e) {
  const std::string l = letters(e);
  return einsum(l + "->" + l.substr(1), {e});
}
inline expression tokens_of(const expression& e) {
  const expression ones =
      detail::made_of({e}, e.rank(), [](ir::graph& g, std::span<const ir::node_id> args) {
        ir::node_id first = args[0];
        for (std::size_t axis = 1; axis < g.rank(first); ++axis) first = g.slice(first, axis, 0, 1);
        return ir::ones_like(g, first);
      });
  return stop_gradient(einsum(letters(e) + "->", {ones}));
}
inline expression mean_over_tokens(const expression& e) {
  return divide(sum_over_tokens(e), tokens_of(e));
}

// The mean over all axes behind the first `left`.
inline expression mean_behind(std::size_t left, expression e) {
  while (e.rank() > left) e = norm(row_norm::mean, e);
  return e;
}

// [t, ...] -> [t].
inline expression squares(const expression& e) {
  const std::string l = letters(e);
  return einsum(l + ',' + l + "->t", {e, e});
}
inline expression error(const char* loss, const expression& y, const expression& target) {
  expects_pair(loss, y, target, 2);
  return subtract(y, target);
}

// The logarithm of a probability, of which 0 counts as the least one.
inline expression log_of(const expression& p, double least = 1e-37) {
  return apply(pointwise::log, apply(pointwise::at_least, p, least));
}

// [t, n] -> [t]: log sum exp, whose gradient is the softmax p. It is sum p s + H(p), where p does
// not change; scores of -infinity have p = 0.
inline expression log_sum_exp(const expression& scores) {
  constexpr double lowest = -1e30;
  const expression p = stop_gradient(map_rows(row_function::softmax, scores)),
                   s = apply(pointwise::at_least, scores, lowest);
  return subtract(einsum("tn,tn->t", {p, s}), einsum("tn,tn->t", {p, log_of(p)}));
}

}  // namespace fmoe::dynamic::losses::terms

namespace fmoe::dynamic::losses {

FMOE_INLINE expression mse(const expression& y, const expression& target) {
  const expression e = terms::error("mse", y, target);
  return terms::mean_behind(1, multiply(e, e));
}

FMOE_INLINE expression nmse(const expression& y, const expression& target) {
  return divide(terms::squares(terms::error("nmse", y, target)), terms::squares(target));
}

FMOE_INLINE expression normalized_error(const expression& y, const expression& target) {
  return divide(terms::squares(terms::error("normalized_error", y, target)),
                apply(pointwise::sqrt, terms::squares(target)));
}

FMOE_INLINE expression authors_mse(const expression& y, const expression& target) {
  terms::expects_pair("authors_mse", y, target, 2);
  return divide(mse(y, target), apply(pointwise::sqrt, terms::squares(target)));
}

FMOE_INLINE expression fvu(const expression& y, const expression& target) {
  const auto sum = [](const expression& e) { return einsum("t->", {terms::squares(e)}); };
  const expression e = terms::error("fvu", y, target);
  return divide(sum(e), sum(subtract(target, terms::mean_over_tokens(target))));
}

FMOE_INLINE expression uniformity(const expression& g1, const expression& g2, double floor) {
  terms::expects_pair("uniformity", g1, g2, 3, 3);
  detail::expects<value_error>(floor > 0 && floor < 1, "[uniformity] the floor is ", floor,
                               ", and a number between 0 and 1 is expected");
  const auto mean_log = [&](const expression& g) {
    return terms::mean_behind(0, terms::log_of(terms::mean_over_tokens(g), floor));
  };
  return apply(pointwise::scale, add(mean_log(g1), mean_log(g2)), -0.5);
}

FMOE_INLINE expression ambiguity(const expression& g1, const expression& g2) {
  terms::expects_pair("ambiguity", g1, g2, 3, 3);
  const auto greatest = [](const expression& g) {
    return terms::mean_behind(1, norm(row_norm::max, g));
  };
  return apply(pointwise::shift, apply(pointwise::scale, add(greatest(g1), greatest(g2)), -0.5), 1);
}

FMOE_INLINE expression load_balance(const expression& coefficients, const expression& scores) {
  terms::expects_pair("load_balance", coefficients, scores, 2, 2);
  const expression used = stop_gradient(
                       apply(pointwise::power, apply(pointwise::abs, coefficients), 0)),
                   f = terms::mean_over_tokens(used),
                   p = terms::mean_over_tokens(map_rows(row_function::softmax, scores));
  const expression n = detail::made_of({f}, 0, [](ir::graph& g, std::span<const ir::node_id> args) {
    return g.einsum("n->", {ir::ones_like(g, args[0])});
  });
  return multiply(n, einsum("n,n->", {f, p}));
}

FMOE_INLINE expression router_z(const expression& scores) {
  terms::expects_axes("router_z", scores, 2, 2);
  const expression l = terms::log_sum_exp(scores);
  return multiply(l, l);
}

FMOE_INLINE expression entropy(const expression& scores) {
  terms::expects_axes("entropy", scores, 2, 2);
  const expression p = map_rows(row_function::softmax, scores);
  return apply(pointwise::negate, einsum("tn,tn->t", {p, terms::log_of(p)}));
}

FMOE_INLINE expression l1(const expression& coefficients) {
  terms::expects_axes("l1", coefficients, 2);
  return einsum(terms::letters(coefficients) + "->t", {apply(pointwise::abs, coefficients)});
}
FMOE_INLINE expression l1(const expression& coefficients, const expression& weights) {
  terms::expects_axes("l1", coefficients, 2, 2);
  terms::expects_axes("l1", weights, 1, 1);
  return einsum("tn,n->t", {apply(pointwise::abs, coefficients), weights});
}

FMOE_INLINE expression auxk(const expression& y, const expression& target, const expression& units,
                            const expression& dead, const expression& decoder, std::size_t k) {
  const expression left = stop_gradient(subtract(target, y)), z = top_k(multiply(units, dead), k);
  terms::expects_axes("auxk", y, 2, 2);
  terms::expects_axes("auxk", decoder, 2, 2);
  terms::expects_pair("auxk", units, y, 2, 2);
  terms::expects_axes("auxk", dead, 1, 1);
  return mse(einsum("tn,no->to", {z, decoder}), left);
}

}  // namespace fmoe::dynamic::losses
