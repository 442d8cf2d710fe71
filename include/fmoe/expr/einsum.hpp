// SPDX-License-Identifier: MIT
// einsum is the only multilinear operation: it writes matrix products, Hadamard products and whole
// factorized layers.
#pragma once

#include <string_view>

#include <fmoe/base/labels.hpp>
#include <fmoe/expr/operations.hpp>

namespace fmoe::detail {

template <subscripts S, class... Es>
consteval bool ranks_match() {
  extent i = 0;
  return ((operand_labels(S.view(), i++).size() == expression_t<Es>::rank) && ...);
}

template <subscripts S, operand... Es>
auto contracted(const Es&... es) {
  return typed<result_labels(S.view()).size()>(
      [](const auto&... operands) { return contraction(S.view(), {&operands...}); }, es...);
}

}  // namespace fmoe::detail

namespace fmoe {

// einsum<"ti,io->to">(x, w) is x w. It multiplies all operands, and sums over every label that the
// result does not name. It takes any number of operands; the planner finds the order. Blanks do not
// count, and subscripts without an arrow have the result of numpy, the letters that occur once in
// alphabetical order: "ti,io" is "ti,io->ot". When it is lowered, throws shape_error if a label has
// two extents, also if one of them is 1.
//
//   const auto product = einsum<"ti,io->to">(x, w);
//   const auto transposed = einsum<"io->oi">(w);
//   const auto lengths = sqrt(einsum<"ti,ti->t">(x, x));
template <detail::subscripts S, class... Es>
auto einsum(const Es&... es) {
  constexpr bool operands = (operand<Es> && ...);
  static_assert(operands, "einsum: an operand is a tensor, a parameter, an expression or an array");
  constexpr bool dots = detail::has(S.view(), '.');
  static_assert(!dots, "einsum: write a letter for each axis instead of \"...\"");
  constexpr detail::subscripts<detail::size_in_full(S.view()) + 1> full(S.view());
  static_assert(dots || detail::is_well_formed(full.view()),
                "einsum: subscripts are letters, a comma between operands and at most one arrow, "
                "as in \"ti,io->to\"");
  if constexpr (operands && detail::is_well_formed(full.view())) {
    static_assert(detail::result_is_bound(full.view()),
                  "einsum: each label of the result comes once, and from an operand");
    static_assert(detail::operand_count(full.view()) == sizeof...(Es),
                  "einsum: the subscripts name another number of operands");
    if constexpr (detail::operand_count(full.view()) == sizeof...(Es)) {
      static_assert(detail::ranks_match<full, Es...>(),
                    "einsum: an operand's rank differs from its subscripts");
      return detail::contracted<full>(es...);
    } else {
      return detail::refused();
    }
  } else {
    return detail::refused();
  }
}
template <class... Es>
detail::refused einsum(std::string_view, const Es&...) {
  static_assert(detail::never<Es...>,
                "einsum: the subscripts are a template argument, einsum<\"ti,io->to\">(x, w)");
  return {};
}

}  // namespace fmoe
