// SPDX-License-Identifier: MIT
// Compares gradients with central differences in double.
#pragma once

#include <cmath>
#include <random>

#include <fmoe/gradients.hpp>

#include "catch.hpp"
#include "oracle.hpp"
#include "run.hpp"

namespace fmoe::test {

// How far gradients are from differences: the worst element, in units of the largest difference,
// and how many elements were compared. Elements beside a corner of a function are left out.
struct slope_error {
  double worst = 0;
  extent compared = 0, corners = 0;
};

inline ir::leaf_node numbers_leaf(std::vector<extent> shape, const auto& number,
                                  bool parameter = false) {
  const extent n = element_count(shape);
  auto data = std::make_shared<storage>(n * sizeof(double));
  for (extent i = 0; i < n; ++i) static_cast<double*>(data->data())[i] = number(i);
  return {std::move(data), dtype::float64, std::move(shape), parameter};
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (extent i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Compares up to `most` elements of each leaf of the graph of a result, whose leaves are double.
// `value` computes a node.
inline slope_error error_of_slopes(
    const ir::graph& forward, ir::node_id root, unsigned seed, extent most,
    const std::function<std::vector<double>(const ir::graph&, ir::node_id)>& value) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> normal;
  ir::graph g = forward;
  std::vector<double> dy(element_count(g.shape(root)));
  for (double& d : dy) d = normal(bits);
  const ir::node_id seed_leaf =
      g.leaf(numbers_leaf(g.shape(root), [&](extent i) { return dy[i]; }));
  std::vector<ir::node_id> leaves;
  for (const ir::node_id id : forward.ids())
    if (holds_alternative<ir::leaf_node>(forward[id].op)) leaves.push_back(id);
  const auto found = differentiate(g, root, seed_leaf, leaves);

  slope_error error;
  for (extent k = 0; k < leaves.size(); ++k) {
    const auto& leaf = get<ir::leaf_node>(forward[leaves[k]].op);
    REQUIRE(leaf.type == dtype::float64);
    auto* const x = static_cast<double*>(leaf.data->data());
    const extent n = element_count(leaf.shape);
    if (found[k]) REQUIRE(g.shape(*found[k]) == leaf.shape);
    const auto gradient = found[k] ? value(g, *found[k]) : std::vector<double>(n);
    REQUIRE(gradient.size() == n);
    double norm = 0;
    std::vector<std::pair<double, double>> pairs;
    for (extent j = 0; j < std::min(n, most); ++j) {
      const extent i = n <= most ? j : bits() % n;
      const double at = x[i];
      const auto difference = [&](double h) {
        x[i] = at + h;
        const double above = dot(oracle(forward)[root], dy);
        x[i] = at - h;
        const double below = dot(oracle(forward)[root], dy);
        x[i] = at;
        return (above - below) / (2 * h);
      };
      const double wide = difference(2e-4), narrow = difference(1e-4);
      const double slope = (4 * narrow - wide) / 3;  // without the error of second order
      // The two one-sided slopes differ beside a corner, and so do differences of other widths.
      const bool is_corner = !(std::abs(wide - narrow) <= 1e-4 * (1 + std::abs(narrow)));
      if (is_corner) {
        ++error.corners;
        continue;
      }
      pairs.emplace_back(gradient[i], slope);
      norm = std::max(norm, std::abs(slope));
      ++error.compared;
    }
    for (const auto& [a, b] : pairs)
      error.worst = std::max(error.worst, std::isnan(a) ? INFINITY : std::abs(a - b) / (1 + norm));
  }
  return error;
}

}  // namespace fmoe::test
