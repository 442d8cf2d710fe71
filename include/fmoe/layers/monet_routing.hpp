// SPDX-License-Identifier: MIT
// The routing that a Monet layer is called with: g1 or g2, whose heads and halves must be those of
// the layer.
#pragma once

#include <fmoe/expr/expression.hpp>

namespace fmoe::detail {

inline dynamic::expression checked_routing(const char* name, const dynamic::expression& routing,
                                           extent heads, extent halves) {
  return expression_of(routing, 3, [=](ir::graph& g, ir::node_id id) {
    const auto extent_of = [&](extent axis) { return g.extent_of(g[id].axes[axis]); };
    expects<shape_error>(g.fix(id, 1, heads), "[monet] ", name, " has ", extent_of(1),
                         " heads and the layer's heads are ", heads);
    expects<shape_error>(g.fix(id, 2, halves), "[monet] ", name, " has ", extent_of(2),
                         " halves of experts and the layer ", halves);
    expects<shape_error>(extent_of(1) != all,
                         "[monet] compile does not know the heads of g1 and g2: set the layer's "
                         "heads to those of its router");
    return id;
  });
}

// [t, p, s]: routing of as many heads, unless that is `all`. When it is lowered, throws shape_error
// for routing of other heads or halves, and for one that does not tell its heads, as an argument of
// a compiled layer, if `heads` does not.
template <operand_of<3> G>
auto monet_routing(const char* name, const G& g, extent heads, extent halves) {
  return typed<3>(
      [=](const dynamic::expression& x) { return checked_routing(name, x, heads, halves); }, g);
}

}  // namespace fmoe::detail
