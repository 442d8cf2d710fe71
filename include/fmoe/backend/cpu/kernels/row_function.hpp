// SPDX-License-Identifier: MIT
// The functions of rows of base/functions.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmoe/backend/cpu/kernels/entmax.hpp>
#include <fmoe/backend/cpu/kernels/norm.hpp>
#include <fmoe/backend/cpu/kernels/softmax.hpp>
#include <fmoe/backend/cpu/kernels/top_k.hpp>

namespace fmoe::cpu {

// Returns the score of a group of n numbers; NaN if one is NaN.
template <class T, class Arch>
T score_of_group(group_score score, const T* x, extent n) {
  T first = -std::numeric_limits<T>::infinity(), second = first;
  for (extent i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return x[i];
    if (x[i] > first) second = std::exchange(first, x[i]);
    else if (x[i] > second) second = x[i];
  }
  return n == 1 || score == group_score::greatest ? first : first + second;
}

// Keeps the `active` best groups, among equal ones the earlier; the others become -infinity.
template <class T, class Arch>
void best_groups(const T* x, T* y, extent n, grouping groups, extent active) {
  const extent each = n / groups.count;
  T scores[most_groups];
  for (extent g = 0; g < groups.count; ++g)
    scores[g] = score_of_group<T, Arch>(groups.score, x + g * each, each);
  for (extent g = 0; g < groups.count; ++g) {
    const by_rank<T, Arch> is_before{scores, 1};
    extent before = 0;
    for (extent h = 0; h < groups.count; ++h)
      before += is_before(static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(g));
    if (before < active) std::copy_n(x + g * each, each, y + g * each);
    else std::fill_n(y + g * each, each, -std::numeric_limits<T>::infinity());
  }
}

// Keeps the greatest entry of each group, of equal ones the first, NaN being the greatest.
template <class T, class Arch>
void group_max(const T* x, T* y, extent n, extent groups) {
  const extent each = n / groups;
  for (extent at = 0; at < n; at += each) {
    extent best = at;
    for (extent i = at; i < at + each && !std::isnan(x[best]); ++i)
      if (x[i] > x[best] || std::isnan(x[i])) best = i;
    const T most = x[best];
    std::fill_n(y + at, each, -std::numeric_limits<T>::infinity());
    y[best] = most;
  }
}

// Returns the greatest of n numbers but `left_out`, of equal ones the first.
template <class T, class Arch>
extent best_of(const T* x, extent n, extent left_out) {
  extent best = n;
  for (extent i = 0; i < n; ++i)
    if (i != left_out && (best == n || x[i] > x[best])) best = i;
  return best;
}

// Returns the softmax at entry `best`, the greatest of n numbers but `left_out`, over those that
// stand beside it, as NaN always does. The sum is in double.
template <class T, class Arch>
T share_of_best(const T* x, extent n, extent best, extent left_out, T jitters) {
  constexpr extent width = lanes<double, Arch>;
  const auto distance = [&](extent i) {
    return i == left_out || (x[best] - x[i]) / std::max(std::abs(x[i]), x[best]) > jitters
               ? -std::numeric_limits<double>::infinity()
               : static_cast<double>(x[i]) - static_cast<double>(x[best]);
  };
  double sum = 0;
  for (extent i = 0; i < n; i += width) {
    double part[width];
    for (extent k = 0; k < width; ++k)
      part[k] = i + k < n ? distance(i + k) : -std::numeric_limits<double>::infinity();
    store<double, Arch>(part,
                        vector_functions<double, Arch>::exponential(load<double, Arch>(part)));
    for (const double e : part) sum += e;
  }
  return static_cast<T>(1 / sum);
}

// Weighs the two greatest entries. A row with a NaN or +infinity, or without two entries above
// -infinity, becomes NaN.
template <class T, class Arch>
void sparse_mixer(const T* x, T* y, extent n, double jitter) {
  const T jitters = static_cast<T>(2 * jitter);
  const extent first = best_of<T, Arch>(x, n, n), second = best_of<T, Arch>(x, n, first);
  const T weights[] = {share_of_best<T, Arch>(x, n, first, n, jitters),
                       share_of_best<T, Arch>(x, n, second, first, jitters)};
  const T sum = weights[0] + weights[1];
  std::fill_n(y, n, std::isnan(sum) ? sum : T(0));
  if (std::isnan(sum)) return;
  y[first] = weights[0];
  y[second] = weights[1];
}

// Computes y[n] from x[n]. May be in place.
template <class T, class Arch>
FMOE_NOINLINE void apply(row_function fn, double parameter, grouping groups, const T* x, T* y,
                         extent n, T bound) noexcept {
  switch (fn) {
    case row_function::softmax: return softmax<T, Arch>(x, y, n);
    case row_function::bounded_softmax: return softmax<T, Arch>(x, y, n, bound);
    case row_function::entmax: return entmax<T, Arch>(x, y, n, parameter);
    case row_function::layer_norm: return layer_norm<T, Arch>(x, y, n, parameter);
    case row_function::rms_norm: return rms_norm<T, Arch>(x, y, n, parameter);
    case row_function::clamped_rms_norm: return clamped_rms_norm<T, Arch>(x, y, n, parameter);
    case row_function::best_groups:
      return best_groups<T, Arch>(x, y, n, groups, static_cast<extent>(parameter));
    case row_function::group_max:
      return group_max<T, Arch>(x, y, n, static_cast<extent>(parameter));
    case row_function::sparse_mixer: return sparse_mixer<T, Arch>(x, y, n, parameter);
  }
}

}  // namespace fmoe::cpu
