// SPDX-License-Identifier: MIT
// Compares gradients with central differences in double.
#pragma once

#include <cmath>
#include <functional>
#include <random>

#include <fmoe/gradients.hpp>

#include "catch.hpp"
#include "oracle.hpp"
#include "run.hpp"

namespace fmoe::test {

// How far gradients are from differences: the worst element in units of the largest difference of
// its leaf, and how many elements were compared. Those beside a corner of a function are left out.
struct slope_error {
  double worst = 0;
  extent compared = 0, corners = 0;
};

// A function of one number near 0, by its values there.
struct local_slope {
  double slope;
  bool is_corner;

  explicit local_slope(const std::function<double(double)>& f) {
    constexpr double h = 1e-4;
    const double at = f(0), above = f(h), below = f(-h), near_above = f(h / 2),
                 near_below = f(-h / 2);
    const double wide = (above - below) / (2 * h), narrow = (near_above - near_below) / h;
    slope = (4 * narrow - wide) / 3;  // without the error of second order
    // The slopes to both sides differ by the curvature times h, or by a corner.
    const double bend = (above - 2 * at + below) / h,
                 near_bend = (near_above - 2 * at + near_below) / (h / 2);
    const double noise = 1e-6 * (1 + std::abs(slope)) + 1e-11 * std::abs(at);
    is_corner = !(std::abs(near_bend) <= 0.7 * std::abs(bend) + noise) ||
                !(std::abs(wide - narrow) <= 1e-4 * (1 + std::abs(narrow)) + noise);
  }
};

inline ir::leaf_node numbers_leaf(detail::vector<extent> shape, const auto& number,
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

// Compares up to `most` elements of each leaf of the graph of a result, whose leaves are double but
// for the ones that `repeat` multiplies with. `value` computes a node.
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
    if (const auto* const leaf = get_if<ir::leaf_node>(&forward[id].op);
        leaf != nullptr && !(leaf->copied && leaf->type == dtype::float32))
      leaves.push_back(id);
  const auto found = differentiate(g, {root}, {seed_leaf}, leaves);

  const double noise = 1e-4 * std::abs(dot(oracle(forward)[root], dy));
  slope_error error;
  for (extent k = 0; k < leaves.size(); ++k) {
    const auto& leaf = get<ir::leaf_node>(forward[leaves[k]].op);
    REQUIRE(leaf.type == dtype::float64);
    auto* const x = static_cast<double*>(leaf.data->data());
    const extent n = element_count(leaf.shape);
    if (found[k]) REQUIRE(g.shape(*found[k]) == leaf.shape);
    const auto gradient = found[k] ? value(g, *found[k]) : std::vector<double>(n);
    REQUIRE(gradient.size() == n);
    double norm = noise;
    std::vector<std::pair<double, double>> pairs;
    for (extent j = 0; j < std::min(n, most); ++j) {
      const extent i = n <= most ? j : bits() % n;
      const double at = x[i];
      const local_slope difference([&](double h) {
        x[i] = at + h;
        return dot(oracle(forward)[root], dy);
      });
      x[i] = at;
      const double slope = difference.slope;
      if (difference.is_corner) {
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
