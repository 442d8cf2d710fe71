// SPDX-License-Identifier: MIT
// Selections: which entries are kept is held constant, as the authors' code does. The scores that
// are kept have the cotangent of their weighting, the others 0.
#pragma once

#include <fmoe/gradients/row_rules.hpp>

namespace fmoe::reverse {

// The same choice with another weighting.
inline node_id chosen(ir::graph& g, const ir::select_node& n, weighting w) {
  selection_rule rule = n.rule;
  rule.weights = w;
  return g.select(rule, n.arg, n.ranked);
}

// The argument of relu, if x is one.
inline std::optional<node_id> argument_of_relu(const ir::graph& g, node_id x) {
  const auto* m = get_if<ir::map_node>(&g[x].op);
  if (m == nullptr || m->f != number_function{pointwise::relu}) return {};
  return m->arg;
}

// c where the selection y is above 0: a product, so that the planner makes c only there.
inline node_id where_positive(ir::graph& g, node_id y, node_id c) {
  return times(g, g.map(pointwise::power, 0, y), c);
}

// The cotangent of the scores, or of their pairs for product_top_k.
inline node_id cotangent_of_kept(ir::graph& g, const ir::select_node& n, node_id y, node_id c) {
  using enum selection_rule::kind;
  switch (n.rule.weights) {
    case weighting::softmax: return cotangent_of_scores(g, y, c);
    case weighting::relu: return n.rule.what == top_k ? where_positive(g, y, c) : keep(g, c, y);
    case weighting::softmax_of_all:
      return cotangent_of_scores(g, g.map_rows(row_function::softmax, 0, n.arg),
                                 times(g, chosen(g, n, weighting::one), c));
    case weighting::normalized: {  // (c - sum y c) / sum of the kept scores
      const node_id kept = chosen(g, n, weighting::one), yc = row_sum(g, times(g, y, c));
      const node_id sum = row_sum(g, chosen(g, n, weighting::score));
      return by_row(g, minus(g, times(g, kept, c), by_row(g, kept, yc)),
                    g.map(pointwise::inverse, 1, sum));
    }
    case weighting::score:
    case weighting::one: break;
  }
  return n.rule.what == nonzero ? c : times(g, chosen(g, n, weighting::one), c);
}

inline void pull(cotangents& to, const ir::select_node& n, node_id y, node_id c) {
  using enum selection_rule::kind;
  ir::graph& g = to.g;
  const bool is_constant = n.rule.weights == weighting::one && n.rule.what != nonzero;
  if (!to.needs(n.arg) || is_constant) return;
  if (n.rule.what == top_k && n.rule.weights == weighting::score)
    if (const auto x = argument_of_relu(g, n.arg)) {  // kept and positive is what y shows
      to.give(*x, where_positive(g, y, c));
      return;
    }
  const node_id kept = cotangent_of_kept(g, n, y, c);
  to.give(n.arg, n.rule.what == product_top_k ? g.unpair(kept, g.shape(n.arg).back()) : kept);
}

}  // namespace fmoe::reverse
