// SPDX-License-Identifier: MIT
// What reverse mode knows while it goes through a graph from a result to its operands: for each
// node the parts of its cotangent, which is the gradient of the result with respect to the node.
// The functions below add the nodes that rules are made of.
#pragma once

#include <cstring>
#include <string>
#include <utility>

#include <fmoe/base/vector.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::reverse {

using namespace detail;
using ir::node_id;

class cotangents {
 public:
  // Cotangents of the nodes that the graph has now and that `needed` marks. Rules add more nodes.
  cotangents(ir::graph& graph, list_by<node_id, bool> needed)
      : g(graph),
        needed_(std::move(needed)),
        parts_(needed_.size()) {}

  ir::graph& g;

  bool needs(node_id id) const { return needed_.contains(id) && needed_[id]; }
  bool has(node_id id) const { return needs(id) && !parts_[id].empty(); }

  // Adds a part to the cotangent of a node.
  void give(node_id to, node_id part) {
    if (needs(to)) parts_[to].push_back(part);
  }

  // Returns the sum of the parts, in the order in which they came.
  node_id sum(node_id id) {
    vector<node_id>& parts = parts_[id];
    node_id total = parts[0];
    for (std::size_t k = 1; k < parts.size(); ++k) total = g.add(total, parts[k]);
    parts = {total};
    return total;
  }

 private:
  list_by<node_id, bool> needed_;
  list_by<node_id, vector<node_id>> parts_;
};

// Letters for the axes of a node; its last axis is the row.
inline std::string letters(const ir::graph& g, node_id x) {
  return std::string("abcdefgh").substr(0, g.rank(x));
}
inline std::string letters_of_rows(const ir::graph& g, node_id x) {
  std::string l = letters(g, x);
  l.pop_back();
  return l;
}

inline double row_length(const ir::graph& g, node_id x) {
  return static_cast<double>(g.shape(x).back());
}

// A constant of these numbers. Equal constants are one leaf.
template <class Number>
node_id constant(ir::graph& g, vector<extent> shape, const Number& number) {
  const extent n = element_count(shape);
  auto data = std::make_shared<storage>(n * sizeof(float));
  for (extent i = 0; i < n; ++i) static_cast<float*>(data->data())[i] = number(i);
  return g.leaf({std::move(data), dtype::float32, std::move(shape), true, -1, true});
}
inline node_id ones(ir::graph& g, extent n) {
  return constant(g, {n}, [](extent) { return 1.f; });
}

// The product of two nodes of one shape, whichever comes first.
inline node_id times(ir::graph& g, node_id x, node_id y) {
  return x < y ? g.multiply(x, y) : g.multiply(y, x);
}
inline node_id minus(ir::graph& g, node_id x, node_id y) {
  return g.add(x, g.map(pointwise::negate, 0, y));
}
inline node_id scaled(ir::graph& g, node_id x, double by) {
  return by == 1 ? x : g.map(pointwise::scale, by, x);
}
// x where the condition is above 0, else 0; and the other way round.
inline node_id keep(ir::graph& g, node_id x, node_id condition) {
  return g.join(pass_kind::keep, x, condition);
}
inline node_id drop(ir::graph& g, node_id x, node_id condition) {
  return g.join(pass_kind::drop, x, condition);
}
// c times the sign of x.
inline node_id signed_by(ir::graph& g, node_id c, node_id x) {
  return minus(g, keep(g, c, x), keep(g, c, g.map(pointwise::negate, 0, x)));
}

// For each row the sum of x y, or of x.
inline node_id row_dot(ir::graph& g, node_id x, node_id y) {
  if (y < x) std::swap(x, y);
  const std::string l = letters(g, x);
  return g.einsum(l + ',' + l + "->" + letters_of_rows(g, x), {x, y});
}
inline node_id row_sum(ir::graph& g, node_id x) {
  return g.einsum(letters(g, x) + "->" + letters_of_rows(g, x), {x});
}
// x times one number for each row.
inline node_id by_row(ir::graph& g, node_id x, node_id factors) {
  const std::string l = letters(g, x);
  return g.einsum(l + ',' + letters_of_rows(g, x) + "->" + l, {x, factors});
}
// One number for each row, repeated along rows as long as those of `like`.
inline node_id along_row(ir::graph& g, node_id numbers, node_id like) {
  return g.repeat(numbers, g.shape(like).back());
}

}  // namespace fmoe::reverse
