// SPDX-License-Identifier: MIT
// The routing that a Monet layer is called with: g1 or g2, whose heads and halves must be those of
// the layer.
#pragma once

#include <fmoe/expr/expression.hpp>

namespace fmoe::detail {

dynamic::expression checked_routing(const char* name, const dynamic::expression& routing,
                                    extent heads, extent halves);

// [t, p, s]: routing of as many heads, unless that is `all`. When it is lowered, throws shape_error
// for routing of other heads or halves, and for one that does not tell its heads, as an argument of
// a compiled layer, if `heads` does not.
template <operand_of<3> G>
auto monet_routing(const char* name, const G& g, extent heads, extent halves) {
  return typed<3>(
      [=](const dynamic::expression& x) { return checked_routing(name, x, heads, halves); }, g);
}

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/layers/monet_routing-inl.hpp>
#endif
