// SPDX-License-Identifier: MIT
// The oracle computes every node of an expression's graph in double, and an einsum by brute force
// over the product of all its labels. It shares only the graph with the planner and the kernels.
// oracle.cpp computes the nodes; it is compiled once for all tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <fmoe/expr/expression.hpp>
#include <fmoe/ir/graph.hpp>

#include "names.hpp"
#include "normal.hpp"

namespace fmoe::test {

// Fills with reproducible numbers from N(0, scale).
template <class T, std::size_t Rank>
void fill(tensor<T, Rank>& t, unsigned seed, float scale = 1) {
  normal_numbers normal(seed);
  T* const to = detail::elements_to_write(t);
  for (extent i = 0; i < t.size(); ++i) to[i] = convert<T>(normal() * scale);
}

template <class Tensor>
Tensor random(const std::array<extent, Tensor::rank>& shape, unsigned seed, float scale = 1) {
  Tensor t(shape);
  fill(t, seed, scale);
  return t;
}

// Reproducible integers of -2 to 2.
template <class Tensor>
Tensor integers(const std::array<extent, Tensor::rank>& shape, unsigned seed) {
  Tensor t(shape);
  std::mt19937 bits(seed);
  auto* const to = detail::elements_to_write(t);
  for (extent i = 0; i < t.size(); ++i)
    to[i] = convert<typename Tensor::value_type>(static_cast<float>(bits() % 5) - 2);
  return t;
}

class oracle {
 public:
  explicit oracle(const ir::graph& g);
  const std::vector<double>& operator[](ir::node_id id) const {
    return values_[static_cast<extent>(id)];
  }

 private:
  std::vector<std::vector<double>> values_;
};

// Computes the expression in double, by brute force.
std::vector<double> reference(const operand auto& e) {
  ir::graph g;
  const ir::node_id root = as_expression(e).lower(g);
  return oracle(g)[root];
}

// max |y - reference| / max |reference|; infinity if only one of the two is NaN.
template <class T>
double relative_error(const T* y, const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (extent i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(y[i]);
    if (std::isnan(d) != std::isnan(expected[i])) return std::numeric_limits<double>::infinity();
    if (std::isnan(d)) continue;
    error = std::max(error, std::abs(d - expected[i]));
    norm = std::max(norm, std::abs(expected[i]));
  }
  return norm == 0 ? error : error / norm;
}

}  // namespace fmoe::test
