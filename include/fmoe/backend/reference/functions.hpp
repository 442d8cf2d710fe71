// SPDX-License-Identifier: MIT
// The functions of numbers and rows, in double, written like their definitions. No other backend
// shares this code, so a mistake in one is not a mistake in both.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>

#include <fmoe/base/functions.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ops/row_norm.hpp>

namespace fmoe::reference_backend {

using row = std::span<double>;
using const_row = std::span<const double>;

inline double apply(pointwise f, double parameter, double x) {
  constexpr double cubic = 0.044715;
  switch (f) {
    case pointwise::relu: return x < 0 ? 0 : x;
    case pointwise::gelu: return x / 2 * std::erfc(-x / std::numbers::sqrt2);
    case pointwise::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 * std::numbers::inv_pi) * (x + cubic * x * x * x)));
    case pointwise::silu: return x / (1 + std::exp(-x));
    case pointwise::sigmoid: return 1 / (1 + std::exp(-x));
    case pointwise::squared_relu: return x < 0 ? 0 : x * x;
    case pointwise::exp: return std::exp(x);
    case pointwise::sqrt: return std::sqrt(x);
    case pointwise::inverse_sqrt: return 1 / std::sqrt(x);
    case pointwise::negate: return -x;
    case pointwise::scale: return parameter * x;
    case pointwise::shift: return parameter + x;
    case pointwise::threshold: return x < parameter ? 0 : x;
    case pointwise::tanh: return std::tanh(x);
    case pointwise::log: return std::log(x);
    case pointwise::abs: return std::abs(x);
    case pointwise::at_least: return x < parameter ? parameter : x;
    case pointwise::at_most: return x > parameter ? parameter : x;
    case pointwise::quotient: return x / parameter;
    case pointwise::inverse: return parameter / x;
    case pointwise::power: return x <= 0 ? 0 : std::pow(x, parameter);
    case pointwise::gelu_slope:
      return std::erfc(-x / std::numbers::sqrt2) / 2 +
             x * std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    case pointwise::gelu_tanh_slope: {
      const double u = 2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x),
                   slope = 2 * std::sqrt(2 / std::numbers::pi) * (1 + 0.134145 * x * x);
      return 1 / (1 + std::exp(-u)) + x * slope / (2 + std::exp(u) + std::exp(-u));
    }
    case pointwise::silu_slope:
      return 1 / (1 + std::exp(-x)) + x / (2 + std::exp(x) + std::exp(-x));
  }
  return x;
}

inline double joined(pass_kind what, double x, double o) {
  switch (what) {
    case pass_kind::map: return x;
    case pass_kind::add: return x + o;
    case pass_kind::multiply: return x * o;
    case pass_kind::divide: return x / o;
    case pass_kind::max: return std::isnan(x) || x > o ? x : o;
    case pass_kind::min: return std::isnan(x) || x < o ? x : o;
    case pass_kind::keep: return o > 0 ? x : 0;
    case pass_kind::drop: return o > 0 ? 0 : x;
    case pass_kind::above: return std::isnan(x) || x > o ? x : 0;
  }
  return x;
}

// exp(x - max) divided by its sum, in place.
inline void softmax(row x) {
  if (x.empty()) return;
  const double max = *std::ranges::max_element(x);
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - max);
  for (double& v : x) v /= sum;
}

// The softmax of the entries that reach min(max, bound); the others become 0.
inline void bounded_softmax(row x, double bound) {
  if (x.empty()) return;
  const double least = std::min(bound, *std::ranges::max_element(x));
  for (double& v : x)
    if (v < least) v = -std::numeric_limits<double>::infinity();
  softmax(x);
}

// [(alpha - 1) (x - max) - tau]_+ ^ (1 / (alpha - 1)), where tau makes the sum 1; bisection finds
// it to the last bit.
inline void entmax(row x, double alpha) {
  if (x.empty()) return;
  const double max = *std::ranges::max_element(x), power = 1 / (alpha - 1);
  const auto weight = [&](double v, double tau) {
    return std::pow(std::max((alpha - 1) * (v - max) - tau, 0.0), power);
  };
  double low = -1, high = 0;
  constexpr int bits = 1100;  // of any double: an interval that halves so often is two neighbours
  for (int step = 0; step < bits; ++step) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    double sum = 0;
    for (const double v : x) sum += weight(v, middle);
    (sum >= 1 ? low : high) = middle;
  }
  for (double& v : x) v = weight(v, low);
}

// (x - mean) / sqrt(variance + epsilon)
inline void layer_norm(row x, double epsilon) {
  const double n = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double variance = 0;
  for (const double v : x) variance += (v - mean) * (v - mean) / n;
  for (double& v : x) v = (v - mean) / std::sqrt(variance + epsilon);
}

// x / sqrt(mean(x^2) + epsilon)
inline void rms_norm(row x, double epsilon) {
  const double length = planner::row_norm_op{row_norm::l2}.of(x);
  const double mean = length * length / static_cast<double>(x.size());
  for (double& v : x) v /= std::sqrt(mean + epsilon);
}

// x sqrt(n) / max(|x|_2, epsilon)
inline void clamped_rms_norm(row x, double epsilon) {
  const double length = std::max(planner::row_norm_op{row_norm::l2}.of(x), epsilon);
  for (double& v : x) v *= std::sqrt(static_cast<double>(x.size())) / length;
}

// Returns the places of x, the greatest first; NaN is the greatest, and among equal ones the lower
// place comes first.
inline vector<extent> best_first(const_row x) {
  vector<extent> order(x.size());
  std::iota(order.begin(), order.end(), extent{0});
  std::ranges::stable_sort(order, [&](extent a, extent b) {
    if (std::isnan(x[a]) || std::isnan(x[b])) return std::isnan(x[a]) && !std::isnan(x[b]);
    return x[a] > x[b];
  });
  return order;
}

// x in the `active` groups with the greatest scores.
inline void best_groups(row x, grouping groups, extent active) {
  const extent each = x.size() / groups.count;
  const bool adds = groups.score == group_score::sum_of_two && each > 1;
  vector<double> scores;
  for (extent g = 0; g < groups.count; ++g) {
    const row group = x.subspan(g * each, each);
    const auto order = best_first(group);
    scores.push_back(group[order[0]] + (adds ? group[order[1]] : 0));
  }
  const auto order = best_first(scores);
  for (extent i = active; i < groups.count; ++i)
    std::ranges::fill(x.subspan(order[i] * each, each), -std::numeric_limits<double>::infinity());
}

// x where it is the greatest of its group.
inline void group_max(row x, extent groups) {
  const extent each = x.size() / groups;
  for (extent at = 0; at < x.size(); at += each) {
    const row group = x.subspan(at, each);
    const extent best = best_first(group)[0];
    const double most = group[best];
    std::ranges::fill(group, -std::numeric_limits<double>::infinity());
    group[best] = most;
  }
}

// The softmax of x at its greatest entry, and without this one at the next, each over the entries
// that stand beside it.
inline void sparse_mixer(row x, double jitter) {
  const auto order = best_first(x);
  vector<double> rest(x.begin(), x.end()), weights(x.size());
  for (extent k = 0; k < 2; ++k) {
    const double top = rest[order[k]];
    vector<double> beside = rest;
    for (double& v : beside)
      if ((top - v) / std::max(std::abs(v), top) > 2 * jitter)
        v = -std::numeric_limits<double>::infinity();
    softmax(beside);
    weights[order[k]] = beside[order[k]];
    rest[order[k]] = -std::numeric_limits<double>::infinity();
  }
  const double sum = weights[order[0]] + weights[order[1]];
  for (extent i = 0; i < x.size(); ++i) x[i] = std::isnan(sum) ? sum : weights[i];
}

// A function of a row, in place. `bound` is that of bounded_softmax, `groups` those of best_groups.
inline void apply(row_function f, double parameter, grouping groups, double bound, row x) {
  switch (f) {
    case row_function::softmax: return softmax(x);
    case row_function::bounded_softmax: return bounded_softmax(x, bound);
    case row_function::entmax: return entmax(x, parameter);
    case row_function::layer_norm: return layer_norm(x, parameter);
    case row_function::rms_norm: return rms_norm(x, parameter);
    case row_function::clamped_rms_norm: return clamped_rms_norm(x, parameter);
    case row_function::best_groups: return best_groups(x, groups, static_cast<extent>(parameter));
    case row_function::group_max: return group_max(x, static_cast<extent>(parameter));
    case row_function::sparse_mixer: return sparse_mixer(x, parameter);
  }
}

}  // namespace fmoe::reference_backend
