// SPDX-License-Identifier: MIT
// The standard normal distribution.
#pragma once

#include <limits>

#include <fmoe/base/real_functions.hpp>

namespace fmoe::detail {

// Returns the x that a standard normal number exceeds with probability q, Phi^-1(1 - q): infinity
// for q = 0, -infinity for q = 1. It bisects to the last bit, because the result is a threshold
// that decides which experts run.
inline double normal_quantile_above(double q) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!(q > 0)) return infinity;
  if (!(q < 1)) return -infinity;
  const auto above = [](double x) { return x < 0 ? 1 - normal_tail(-x) : normal_tail(x); };
  double low = -40, high = 40;
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) return middle;
    (above(middle) > q ? low : high) = middle;
  }
}

}  // namespace fmoe::detail
