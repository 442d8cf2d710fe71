// SPDX-License-Identifier: MIT
// einsum is the only multilinear operation: it writes matrix products, Hadamard products and whole
// factorized layers.
#pragma once

#include <tuple>

#include <fmoe/expr/expression.hpp>

namespace fmoe {

template <subscripts S, expression... Es>
struct contraction {
  using scalar = arithmetic_t<typename Es::scalar...>;
  static constexpr extent rank = result_labels(S.view()).size();

  std::tuple<Es...> operands;

  // Throws value_error for an operand that holds nothing; the message has its subscripts, which
  // tell the parameter.
  ir::node_id lower(ir::graph& g) const {
    extent i = 0;
    const auto check = [&](const auto& e) {
      if constexpr (requires { e.source; })
        expects<value_error>(!e.source.empty(), "[einsum] the operand \"",
                             operand_labels(S.view(), i), "\" of \"", S.view(),
                             "\" holds nothing: set or load the parameter");
      ++i;
    };
    std::apply([&](const auto&... e) { (check(e), ...); }, operands);
    return g.einsum(
        S.view(),
        std::apply([&](const auto&... e) { return std::vector<ir::node_id>{e.lower(g)...}; },
                   operands));
  }
};

template <subscripts S, class... Es>
consteval bool ranks_match() {
  extent i = 0;
  return ((operand_labels(S.view(), i++).size() == expression_t<Es>::rank) && ...);
}

// einsum<"ti,io->to">(x, w) is x w. It multiplies all operands, and sums over every label that the
// result does not name. It takes any number of operands; the planner finds the order. When it is
// lowered, throws shape_error if a label has two extents.
template <subscripts S, class... Es>
auto einsum(const Es&... es) {
  constexpr bool operands = (operand<Es> && ...);
  static_assert(operands, "einsum: an operand is a tensor, a parameter, an expression or an array");
  static_assert(is_well_formed(S.view()),
                "einsum: subscripts are letters, commas and one arrow, as in \"ti,io->to\"");
  if constexpr (operands && is_well_formed(S.view())) {
    static_assert(result_is_bound(S.view()),
                  "einsum: each label of the result comes once, and from an operand");
    static_assert(operand_count(S.view()) == sizeof...(Es),
                  "einsum: the subscripts name another number of operands");
    if constexpr (operand_count(S.view()) == sizeof...(Es)) {
      static_assert(ranks_match<S, Es...>(),
                    "einsum: an operand's rank differs from its subscripts");
      return contraction<S, expression_t<Es>...>{{as_expression(es)...}};
    } else {
      return refused();
    }
  } else {
    return refused();
  }
}
template <class... Es>
refused einsum(std::string_view, const Es&...) {
  static_assert(never<Es...>,
                "einsum: the subscripts are a template argument, einsum<\"ti,io->to\">(x, w)");
  return {};
}

}  // namespace fmoe
