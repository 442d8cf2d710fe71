// SPDX-License-Identifier: MIT
// What a mixture has where some of its experts return their input (the zero-computation experts of
// LongCat-Flash, 2025, section 2.1): their columns stand behind those of the other experts.
#pragma once

#include <fmoe/run/compile.hpp>

namespace fmoe::detail {

// [..., n], [..., z] -> [..., n + z]: the columns of a, then those of b, if the condition holds;
// else a.
template <operand A, operand B>
auto appended_if(bool condition, const A& a, const B& b) {
  return choose(condition, concat<expression_t<A>::rank - 1>(a, b), a);
}

// The neighbouring columns of a matrix, and the first columns of a selection as a selection.
dynamic::expression columns_of(const dynamic::expression& a, extent first, extent count);
dynamic::expression own_columns(const dynamic::expression& a, extent count);

// [t, n + z] -> [t, count]: neighbouring columns; all of them if the layer has no zero experts.
template <operand_of<2> A>
auto columns_if(bool condition, const A& a, extent first, extent count) {
  return typed<2>(
      [=](const dynamic::expression& x) { return condition ? columns_of(x, first, count) : x; }, a);
}

// [t, n + z] -> [t, n]: the coefficients of experts with weights, or all of them if the layer has
// no zero experts. They are a selection, whatever a is: a contraction visits those that are not 0,
// and at most K a row if a is a top-K.
template <operand_of<2> A>
auto own_coefficients(bool condition, const A& a, extent count) {
  return typed<2>(
      [=](const dynamic::expression& x) { return condition ? own_columns(x, count) : x; }, a);
}

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/layers/zero_experts-inl.hpp>
#endif
