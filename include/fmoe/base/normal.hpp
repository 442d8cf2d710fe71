// SPDX-License-Identifier: MIT
// The standard normal distribution.
#pragma once

#include <cmath>
#include <limits>

namespace fmoe {

// Returns the x that a standard normal number exceeds with probability q, Phi^-1(1 - q): infinity
// for q = 0, -infinity for q = 1. It bisects to the last bit, because the result is a threshold
// that decides which experts run.
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

}  // namespace fmoe
