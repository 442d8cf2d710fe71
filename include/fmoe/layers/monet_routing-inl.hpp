// SPDX-License-Identifier: MIT
// The check of the routing that a Monet layer is called with, when it is lowered.
#pragma once

#include <fmoe/ir/graph.hpp>
#include <fmoe/layers/monet_routing.hpp>

namespace fmoe::detail {

FMOE_INLINE dynamic::expression checked_routing(const char* name,
                                                const dynamic::expression& routing, extent heads,
                                                extent halves) {
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

}  // namespace fmoe::detail
