// SPDX-License-Identifier: MIT
// Graphs of random numbers in double, whose gradients are compared with central differences.
#pragma once

#include <fmoe/evaluate.hpp>

#include "slopes.hpp"

namespace fmoe::test {

// A graph with random leaves in double.
struct random_graph : ir::graph {
  using node_id = ir::node_id;
  std::mt19937 bits{7};

  node_id tensor(detail::vector<extent> shape, double scale = 1, double shift = 0,
                 bool is_parameter = false) {
    std::normal_distribution<double> normal(shift, scale);
    return leaf(numbers_leaf(std::move(shape), [&](extent) { return normal(bits); }, is_parameter));
  }
  node_id parameter(detail::vector<extent> shape) { return tensor(std::move(shape), 1, 0, true); }
  node_id positive(detail::vector<extent> shape) {  // between 0.2 and 2
    std::uniform_real_distribution<double> uniform(0.2, 2);
    return leaf(numbers_leaf(std::move(shape), [&](extent) { return uniform(bits); }));
  }
};

// Compares the gradients of a node with differences, on the CPU and on the reference backend.
inline void check_slopes(const ir::graph& g, ir::node_id root) {
  const auto on_cpu = [](const ir::graph& made, ir::node_id id) {
    return computed<double>(made, id, {});
  };
  for (const bool by_cpu : {true, false}) {
    const slope_error e = error_of_slopes(g, root, 3, 30, by_cpu ? on_cpu : by_reference);
    CAPTURE(by_cpu, e.worst, e.compared, e.corners);
    CHECK(e.compared > 0);
    CHECK(e.worst <= 1e-8);
  }
}

}  // namespace fmoe::test
