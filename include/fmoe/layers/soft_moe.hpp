// SPDX-License-Identifier: MIT
// The dense, or soft, mixture of linear experts: y = sum over all n of a_n W_n x.
#pragma once

#include <fmoe/arrays/released.hpp>
#include <fmoe/layers/expert_slice.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe {

// The dense, or soft, mixture: every token takes every expert, y = sum over n of a_n W_n x with a =
// entmax(x G), which is the softmax for alpha 1. Labels as above; i input, o output.
template <class T = float>
struct soft_moe {
  parameter<T, 2> router;   // i n
  parameter<T, 3> experts;  // n i o
  double alpha = 1;

  // [t, i] -> [t, n]: a.
  auto coefficients(const operand_of<2> auto& x) const {
    return entmax(einsum<"ti,in->tn">(x, router), alpha);
  }

  // [t, i], [t, n] -> [t, o]: the output of x with these coefficients.
  auto mixed(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    return einsum<"tn,ti,nio->to">(a, x, experts);
  }

  // [t, i] -> [t, n]: |a_tn x_t W_n|_2, the norm of each expert's contribution to a row.
  auto contribution_norms(const operand_of<2> auto& x) const {
    return contribution_norms(x, coefficients(x));
  }
  auto contribution_norms(const operand_of<2> auto& x, const operand_of<2> auto& a) const {
    return abs(a) * norm(row_norm::l2, einsum<"ti,nio->tno">(x, experts));
  }

  // [t, i] -> [t, o].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // Returns W_n [i, o]. Throws value_error if there is no such expert.
  auto expert(std::size_t n) const { return as_expression(detail::expert_slice<0>(experts, n)); }

  static void released(auto& layer, auto&& visit) {
    visit(released_name{"G", presence::required, "in"}, layer.router);
    visit(released_name{"W", presence::required, "nio"}, layer.experts);
  }
  static void describe(auto& layer, auto& file) {
    file.setting("phi", layer.alpha, {{"softmax", 1}, {"entmax15", 1.5}, {"sparsemax", 2}});
  }
};

}  // namespace fmoe
