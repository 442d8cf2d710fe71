// SPDX-License-Identifier: MIT
// Functions of each row, and norms: y is the result of x, and c the cotangent of y.
#pragma once

#include <cmath>

#include <fmoe/gradients/cotangents.hpp>

namespace fmoe::reverse {

// y (c - sum y c) for a softmax y of each row.
inline node_id cotangent_of_scores(ir::graph& g, node_id y, node_id c) {
  const node_id yc = times(g, y, c);
  return minus(g, yc, by_row(g, y, row_sum(g, yc)));
}

// s c - s sum(s c) / sum(s) with s = y^(2 - alpha), 0 where y is 0.
inline node_id cotangent_of_entmax(ir::graph& g, double alpha, node_id y, node_id c) {
  const node_id s =
      alpha == 1.5 ? g.map(pointwise::sqrt, 0, y) : g.map(pointwise::power, 2 - alpha, y);
  const node_id sc = times(g, s, c);
  return minus(g, sc, by_row(g, s, g.divide(row_sum(g, sc), row_sum(g, s))));
}

// c without its mean along the row.
inline node_id without_mean(ir::graph& g, node_id c) {
  return minus(g, c, along_row(g, g.norm(row_norm::mean, c), c));
}

// For each row 1 / sqrt(the mean of x^2 + epsilon).
inline node_id inverse_deviation(ir::graph& g, node_id x, double epsilon) {
  const node_id mean = scaled(g, row_dot(g, x, x), 1 / row_length(g, x));
  return g.map(pointwise::inverse_sqrt, 0, g.map(pointwise::shift, epsilon, mean));
}

// r (c - y mean(c y)) for y = r x with r = 1 / sqrt(mean(x^2) + epsilon).
inline node_id cotangent_of_rms_norm(ir::graph& g, node_id y, node_id c, node_id r, node_id mean) {
  return by_row(g, minus(g, c, by_row(g, y, mean)), r);
}

// y c - p sum(y c) of each of the two weighed entries, where p is the softmax of which its weight
// y is one entry: exp(x - its x) y over those that stand beside it. What stands there is constant.
inline node_id cotangent_of_sparse_mixer(ir::graph& g, double jitter, node_id x, node_id y,
                                         node_id c) {
  const auto greatest = [&](extent k) {
    return g.select({selection_rule::kind::top_k, k, 0, weighting::one}, x);
  };
  const node_id first = greatest(1), second = minus(g, greatest(2), first), yc = times(g, y, c);
  node_id sum = yc;
  for (const node_id chosen : {first, second}) {
    const auto of_chosen = [&](node_id row) { return row_sum(g, keep(g, row, chosen)); };
    const node_id top = along_row(g, of_chosen(x), x);
    const node_id ratio = g.divide(minus(g, top, x), g.max(g.map(pointwise::abs, 0, x), top));
    const node_id is_far = g.map(pointwise::shift, -2 * jitter, ratio);
    node_id e = drop(g, g.map(pointwise::exp, 0, minus(g, x, top)), is_far);
    if (chosen == second) e = drop(g, e, first);
    sum = minus(g, sum, by_row(g, e, times(g, of_chosen(y), of_chosen(yc))));
  }
  return sum;
}

inline node_id cotangent_of_rows(ir::graph& g, const ir::row_function_node& n, node_id y,
                                 node_id c) {
  const node_id x = n.arg;
  const auto mean_of_product = [&] { return scaled(g, row_dot(g, c, y), 1 / row_length(g, y)); };
  switch (n.fn) {
    case row_function::softmax:
    case row_function::bounded_softmax: return cotangent_of_scores(g, y, c);
    case row_function::entmax: return cotangent_of_entmax(g, n.parameter, y, c);
    case row_function::layer_norm: {
      const node_id r = inverse_deviation(g, without_mean(g, x), n.parameter);
      return cotangent_of_rms_norm(g, y, without_mean(g, c), r, mean_of_product());
    }
    case row_function::rms_norm:
      return cotangent_of_rms_norm(g, y, c, inverse_deviation(g, x, n.parameter),
                                   mean_of_product());
    case row_function::clamped_rms_norm: {  // a clamped row is only scaled
      const node_id length = g.norm(row_norm::l2, x);
      const node_id r = g.map(pointwise::inverse, std::sqrt(row_length(g, x)),
                              g.map(pointwise::at_least, n.parameter, length));
      const node_id mean =
          keep(g, mean_of_product(), g.map(pointwise::shift, -n.parameter, length));
      return cotangent_of_rms_norm(g, y, c, r, mean);
    }
    case row_function::best_groups:
    case row_function::group_max: {  // c where y is not -infinity
      constexpr double most = 1e30;
      return keep(g, c, g.map(pointwise::shift, most, y));
    }
    case row_function::sparse_mixer: return cotangent_of_sparse_mixer(g, n.parameter, x, y, c);
  }
  return c;
}

inline void pull(cotangents& to, const ir::row_function_node& n, node_id y, node_id c) {
  if (to.needs(n.arg)) to.give(n.arg, cotangent_of_rows(to.g, n, y, c));
}

inline node_id cotangent_of_norm(ir::graph& g, const ir::row_norm_node& n, node_id y, node_id c) {
  const node_id x = n.arg;
  switch (n.which) {
    case row_norm::l1: return signed_by(g, along_row(g, c, x), x);
    case row_norm::l2: {  // a row of zeros has the cotangent 0
      constexpr double tiny = 1e-30;
      return by_row(g, x, g.divide(c, g.map(pointwise::at_least, tiny, y)));
    }
    case row_norm::max: {  // the first of the greatest
      const node_id first = g.select({selection_rule::kind::top_k, 1, 0, weighting::one},
                                     g.map(pointwise::abs, 0, x));
      return signed_by(g, by_row(g, first, c), x);
    }
    case row_norm::mean: return along_row(g, scaled(g, c, 1 / row_length(g, x)), x);
  }
  return c;
}

inline void pull(cotangents& to, const ir::row_norm_node& n, node_id y, node_id c) {
  if (to.needs(n.arg)) to.give(n.arg, cotangent_of_norm(to.g, n, y, c));
}

}  // namespace fmoe::reverse
