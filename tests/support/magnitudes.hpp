// SPDX-License-Identifier: MIT
// The scale of rounding errors: for every number of an expression's graph, the sum of the absolute
// values of its terms. Whatever the order of its sums, a plan differs from the oracle by at most a
// few times this scale times the epsilon of the arithmetic.
#pragma once

#include "oracle.hpp"

namespace fmoe::test {

class magnitudes {
 public:
  magnitudes(const ir::graph& g, const oracle& values) : graph_(g), exact_(values) {
    for (const ir::node_id id : g.ids()) {
      id_ = id;
      values_.push_back(visit([&](const auto& op) { return value_of(op); }, g[id_].op));
    }
  }
  const std::vector<double>& operator[](ir::node_id id) const {
    return values_[static_cast<extent>(id)];
  }

 private:
  using numbers = std::vector<double>;

  numbers absolute(ir::node_id id) const {
    numbers r = exact_[id];
    for (double& x : r) x = std::abs(x);
    return r;
  }

  // Returns the result of the node at hand for operands that are the magnitudes.
  numbers value_of(const auto&) const {
    ir::graph g;
    std::vector<ir::node_id> copies;
    for (const ir::node_id a : ir::operands(graph_[id_])) {
      const numbers& from = (*this)[a];
      auto data = std::make_shared<storage>(from.size() * sizeof(double));
      std::ranges::copy(from, static_cast<double*>(data->data()));
      copies.push_back(g.leaf({std::move(data), dtype::float64, graph_.shape(a)}));
    }
    const ir::node_id made = g.again(graph_[id_], copies);
    return oracle(g)[made];
  }

  numbers value_of(const ir::leaf_node&) const { return absolute(id_); }
  numbers value_of(const ir::kept_node&) const { return absolute(id_); }
  numbers value_of(const ir::mask_node&) const { return absolute(id_); }
  numbers value_of(const ir::join_node& j) const {
    const numbers &left = (*this)[j.left], &right = (*this)[j.right], &y = exact_[j.right];
    numbers r = left;
    for (extent i = 0; i < r.size(); ++i) {
      const extent k = i % right.size();
      if (j.what == pass_kind::add) r[i] += right[k];
      if (j.what == pass_kind::max || j.what == pass_kind::min) r[i] = std::max(r[i], right[k]);
      if (j.what == pass_kind::divide)
        r[i] = (r[i] + std::abs(exact_[id_][i]) * right[k]) / std::abs(y[k]);
    }
    return r;
  }
  numbers value_of(const ir::map_node& m) const {
    numbers r = absolute(id_);
    const numbers &of = (*this)[m.arg], &x = exact_[m.arg];
    for (extent i = 0; i < r.size(); ++i) {
      if (m.f.fn == pointwise::scale) r[i] = std::abs(m.f.parameter) * of[i];
      else if (m.f.fn == pointwise::squared_relu) r[i] += 2 * std::abs(x[i]) * of[i];
      else if (m.f.fn == pointwise::quotient) r[i] = of[i] / std::abs(m.f.parameter);
      else if (m.f.fn == pointwise::inverse) r[i] *= 1 + of[i] / std::abs(x[i]);
      else if (m.f.fn == pointwise::log) r[i] += of[i] / std::abs(x[i]);
      else if (m.f.fn == pointwise::exp) r[i] *= 1 + of[i];
      else if (m.f.fn == pointwise::inverse_sqrt) r[i] *= 1 + of[i] / (2 * std::abs(x[i]));
      else if (m.f.fn == pointwise::sqrt) r[i] += x[i] == 0 ? 0 : of[i] / (2 * r[i]);
      else r[i] += of[i];  // the slope is at most a little above 1
    }
    return r;
  }

  numbers value_of(const ir::row_norm_node& node) const {
    numbers r = absolute(id_);
    const numbers& of = (*this)[node.arg];
    const extent n = graph_.shape(node.arg).back(), rows = n == 0 ? 0 : of.size() / n;
    for (extent row = 0; row < rows; ++row) {
      double sum = 0, squares = 0, most = 0;
      for (extent i = row * n; i < row * n + n; ++i) {
        sum += of[i];
        squares += of[i] * of[i];
        most = std::max(most, of[i]);
      }
      r[row] = node.which == row_norm::mean ? sum / static_cast<double>(n)
               : node.which == row_norm::l1 ? sum
               : node.which == row_norm::l2 ? std::sqrt(squares)
                                            : most;
    }
    return r;
  }

  numbers value_of(const ir::row_function_node& g) const {
    numbers r = absolute(id_);
    const numbers &of = (*this)[g.arg], &x = exact_[g.arg];
    const extent n = graph_.shape(g.arg).back(), rows = n == 0 ? 0 : x.size() / n;
    for (extent row = 0; row < rows; ++row) {
      const double most = *std::max_element(of.begin() + at(row * n), of.begin() + at(row * n + n));
      double mean = 0, squares = 0, slope = 1;
      for (extent i = row * n; i < row * n + n; ++i) mean += x[i] / static_cast<double>(n);
      if (g.fn != row_function::layer_norm) mean = 0;
      for (extent i = row * n; i < row * n + n; ++i)
        squares += (x[i] - mean) * (x[i] - mean) / static_cast<double>(n);
      if (g.fn == row_function::layer_norm || g.fn == row_function::rms_norm)
        slope = 2 / std::sqrt(squares + g.parameter);
      if (g.fn == row_function::clamped_rms_norm)
        slope = 2 / std::max(std::sqrt(squares), g.parameter);
      for (extent i = row * n; i < row * n + n; ++i) r[i] += slope * most;
    }
    return r;
  }

  numbers value_of(const ir::select_node& s) const {
    numbers r = absolute(id_);
    const numbers& of = (*this)[s.arg];
    if (s.rule.weights == weighting::one) return r;
    const extent n = graph_.shape(id_).back(), rows = n == 0 ? 0 : r.size() / n,
                 each = rows == 0 ? 0 : of.size() / rows;
    for (extent row = 0; row < rows; ++row) {
      const double most =
          *std::max_element(of.begin() + at(row * each), of.begin() + at(row * each + each));
      for (extent i = row * n; i < row * n + n; ++i)
        if (r[i] != 0)
          r[i] +=
              s.rule.weights == weighting::softmax || s.rule.weights == weighting::softmax_of_all
                  ? r[i] * 2 * most
                  : 2 * most;
    }
    return r;
  }

  static std::ptrdiff_t at(extent i) { return static_cast<std::ptrdiff_t>(i); }

  const ir::graph& graph_;
  const oracle& exact_;
  ir::node_id id_{};
  std::vector<numbers> values_;
};

// max |y - expected| / magnitude; infinity if only one of the two is NaN, or if a number that
// should be exactly 0 is not.
template <class T>
double error_to_magnitudes(const std::vector<T>& y, const std::vector<double>& expected,
                           const std::vector<double>& magnitude) {
  double error = 0;
  for (extent i = 0; i < expected.size(); ++i) {
    const double d = std::abs(static_cast<double>(y[i]) - expected[i]);
    if (d == 0) continue;
    if (std::isnan(static_cast<double>(y[i])) && std::isnan(expected[i])) continue;
    if (!(d <= std::numeric_limits<double>::max()) || magnitude[i] == 0)
      return std::numeric_limits<double>::infinity();
    error = std::max(error, d / magnitude[i]);
  }
  return error;
}

}  // namespace fmoe::test
