// SPDX-License-Identifier: MIT
// Nodes that bring numbers together or take them apart.
#pragma once

#include <fmoe/base/vector.hpp>
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

// [..., K] -> [..., K, n]: 1 at the index of each kept entry, and 0 elsewhere.
inline node_id places_of_kept(ir::graph& g, node_id selection) {
  const node_id index = g.kept(kept_part::index, selection);
  const extent n = g.shape(selection).back();
  const node_id minus_numbers = constant(g, {n}, [](extent i) { return -static_cast<float>(i); }),
                distance = g.add(g.repeat(index, n), minus_numbers);
  const node_id nearness =
      g.map(pointwise::shift, 1, g.map(pointwise::negate, 0, g.map(pointwise::abs, 0, distance)));
  return g.map(pointwise::at_least, 0, nearness);
}

inline void pull(cotangents& to, const ir::kept_node& n, node_id y, node_id c) {
  if (n.what == kept_part::index || !to.needs(n.arg)) return;
  const std::string l = letters(to.g, y);
  to.give(n.arg, to.g.einsum(l + ',' + l + "z->" + letters_of_rows(to.g, y) + 'z',
                             {c, places_of_kept(to.g, n.arg)}));
}

// Only gradients have the nodes below: these are second derivatives.

// Zeros before and behind the part. They have the token axis of x.
inline void pull(cotangents& to, const ir::slice_node& n, node_id, node_id c) {
  ir::graph& g = to.g;
  if (!to.needs(n.arg)) return;
  const auto zeros = [&](extent first, extent count) {
    const node_id part = g.slice(n.arg, n.axis, first, count);
    return g.map(pointwise::at_most, 0, g.map(pointwise::at_least, 0, part));
  };
  const extent end = n.first + n.count, all = g.shape(n.arg)[n.axis];
  vector<node_id> parts;
  if (n.first > 0) parts.push_back(zeros(0, n.first));
  parts.push_back(c);
  if (end < all) parts.push_back(zeros(end, all - end));
  to.give(n.arg, parts.size() == 1 ? c : g.concat(std::move(parts), n.axis));
}

// Each pair gets the sum of what its two members have: product_top_k of all pairs.
inline void pull(cotangents& to, const ir::unpair_node& n, node_id, node_id c) {
  const extent s = to.g.shape(c).back();
  if (to.needs(n.arg))
    to.give(n.arg, to.g.select(
                       {.what = selection_rule::kind::product_top_k, .keep = s * s, .each = s}, c));
}

}  // namespace fmoe::reverse
