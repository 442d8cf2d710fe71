// SPDX-License-Identifier: MIT
// The standard normal distribution.
#pragma once

#include <cmath>
#include <limits>

namespace fmoe::detail {

// The x that a standard normal number exceeds with probability q, Phi^-1(1 - q): infinity for 0,
// -infinity for 1. By bisection to the last bit, since a threshold decides which experts run.
inline double normal_quantile_above(double q) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!(q > 0)) return infinity;
  if (!(q < 1)) return -infinity;
  double low = -40, high = 40;
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) return middle;
    (std::erfc(middle * std::sqrt(0.5)) / 2 > q ? low : high) = middle;
  }
}

}  // namespace fmoe::detail
