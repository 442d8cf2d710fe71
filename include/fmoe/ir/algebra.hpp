// SPDX-License-Identifier: MIT
// Functions that add the nodes that rules of gradients are made of.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <fmoe/base/vector.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::ir {

// Letters for the axes of a node; its last axis is the row.
inline std::string letters(const graph& g, node_id x) {
  return std::string("abcdefgh").substr(0, g.rank(x));
}
inline std::string letters_of_rows(const graph& g, node_id x) {
  std::string l = letters(g, x);
  l.pop_back();
  return l;
}

inline double row_length(const graph& g, node_id x) {
  return static_cast<double>(g.shape(x).back());
}

// A constant of these numbers. Equal constants are one leaf.
template <class Number>
node_id constant(graph& g, vector<extent> shape, const Number& number) {
  const extent n = element_count(shape);
  auto data = std::make_shared<storage>(n * sizeof(float));
  for (extent i = 0; i < n; ++i) static_cast<float*>(data->data())[i] = number(i);
  return g.leaf({std::move(data), dtype::float32, std::move(shape), true, -1, true});
}
inline node_id ones(graph& g, extent n) {
  return constant(g, {n}, [](extent) { return 1.f; });
}
// 1 for each number of x; NaN stays. Unlike a constant it has the token axis of x.
inline node_id ones_like(graph& g, node_id x) {
  return g.map(pointwise::at_most, 1, g.map(pointwise::at_least, 1, x));
}

// The product of two nodes of one shape, whichever comes first.
inline node_id times(graph& g, node_id x, node_id y) {
  return x < y ? g.multiply(x, y) : g.multiply(y, x);
}
inline node_id minus(graph& g, node_id x, node_id y) {
  return g.add(x, g.map(pointwise::negate, 0, y));
}
inline node_id scaled(graph& g, node_id x, double by) {
  return by == 1 ? x : g.map(pointwise::scale, by, x);
}
// x where the condition is above 0, else 0.
inline node_id keep(graph& g, node_id x, node_id condition) {
  return g.join(pass_kind::keep, x, condition);
}
// c times the sign of x.
inline node_id signed_by(graph& g, node_id c, node_id x) {
  return minus(g, keep(g, c, x), keep(g, c, g.map(pointwise::negate, 0, x)));
}

// For each row the sum of x y, or of x.
inline node_id row_dot(graph& g, node_id x, node_id y) {
  if (y < x) std::swap(x, y);
  const std::string l = letters(g, x);
  return g.einsum(l + ',' + l + "->" + letters_of_rows(g, x), {x, y});
}
inline node_id row_sum(graph& g, node_id x) {
  return g.einsum(letters(g, x) + "->" + letters_of_rows(g, x), {x});
}
// x times one number for each row.
inline node_id by_row(graph& g, node_id x, node_id factors) {
  const std::string l = letters(g, x);
  return g.einsum(l + ',' + letters_of_rows(g, x) + "->" + l, {x, factors});
}
// One number for each row, repeated along rows as long as those of `like`.
inline node_id along_row(graph& g, node_id numbers, node_id like) {
  return g.repeat(numbers, g.shape(like).back());
}

}  // namespace fmoe::ir
