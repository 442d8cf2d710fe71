// SPDX-License-Identifier: MIT
// Columns of a selection whose last columns are those of zero experts.
#pragma once

#include <fmoe/ir/graph.hpp>
#include <fmoe/layers/zero_experts.hpp>

namespace fmoe::detail {

FMOE_INLINE dynamic::expression columns_of(const dynamic::expression& a, extent first,
                                           extent count) {
  return expression_of(a, 2,
                       [=](ir::graph& g, ir::node_id x) { return g.slice(x, 1, first, count); });
}

FMOE_INLINE dynamic::expression own_columns(const dynamic::expression& a, extent count) {
  return expression_of(a, 2, [=](ir::graph& g, ir::node_id all_columns) {
    const ir::node_id own = g.slice(all_columns, 1, 0, count);
    const auto* const chosen = get_if<ir::select_node>(&g[all_columns].op);
    const bool has_most = chosen != nullptr && chosen->rule.what == selection_rule::kind::top_k;
    const extent most = has_most ? chosen->rule.keep : count;
    if (most >= count) return g.select({selection_rule::kind::nonzero}, own);
    const selection_rule largest{selection_rule::kind::top_k, most, 0, weighting::score};
    return g.select(largest, own, g.map(pointwise::abs, 0, own));
  });
}

}  // namespace fmoe::detail
