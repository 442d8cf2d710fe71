// SPDX-License-Identifier: MIT
// Nodes that bring numbers together or take them apart.
#pragma once

#include <fmoe/gradients/cotangents.hpp>

namespace fmoe::reverse {

inline void pull(cotangents&, const ir::leaf_node&, node_id, node_id) {}
inline void pull(cotangents&, const ir::mask_node&, node_id, node_id) {}

inline void pull(cotangents& to, const ir::append_node& n, node_id, node_id c) {
  if (!to.needs(n.arg)) return;
  to.give(n.arg, to.g.slice(c, to.g.rank(c) - 1, 0, to.g.shape(n.arg).back()));
}

inline void pull(cotangents& to, const ir::concat_node& n, node_id, node_id c) {
  extent first = 0;
  for (const node_id part : n.args) {
    const extent count = to.g.shape(part)[n.axis];
    if (to.needs(part)) to.give(part, to.g.slice(c, n.axis, first, count));
    first += count;
  }
}

inline void pull(cotangents& to, const ir::kept_node& n, node_id, node_id) {
  if (n.what == kept_part::index) return;
  expects<value_error>(!to.needs(n.arg),
                       "[gradient] the values of kept have no derivative: use the selection");
}

// Only gradients have these nodes.
inline void refuse_second() {
  throw value_error(
      "[gradient] the gradient of concat, append_one or product_top_k is not differentiated again");
}
inline void pull(cotangents&, const ir::slice_node&, node_id, node_id) { refuse_second(); }
inline void pull(cotangents&, const ir::unpair_node&, node_id, node_id) { refuse_second(); }

}  // namespace fmoe::reverse
