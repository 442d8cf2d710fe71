// SPDX-License-Identifier: MIT
// Matrix products by plain loops in double. The arrays need only x(t, i), w(i, o) and y(t, o).
#pragma once

#include <algorithm>
#include <cmath>

#include "names.hpp"

namespace fmoe::test {

struct sizes {
  int tokens = 7, inputs = 5, outputs = 3;
};

// These numbers show if one position is mistaken for another.
inline float number_at(int row, int column) {
  return 1 + 0.25f * static_cast<float>(row) - 0.5f * static_cast<float>(column);
}

template <class A>
void number(A&& a, int rows, int columns) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) a(i, j) = number_at(i, j);
}

// True if y = x w within the rounding of float.
template <class X, class W, class Y>
bool is_product(const X& x, const W& w, const Y& y, sizes n = {}) {
  double worst = 0;
  for (int t = 0; t < n.tokens; ++t)
    for (int o = 0; o < n.outputs; ++o) {
      double sum = 0, size = 0;
      for (int i = 0; i < n.inputs; ++i) {
        const double term = static_cast<double>(x(t, i)) * static_cast<double>(w(i, o));
        sum += term;
        size += std::abs(term);
      }
      const double error = std::abs(static_cast<double>(y(t, o)) - sum);
      worst = std::isnan(error) ? 1 : std::max(worst, error / std::max(size, 1.0));
    }
  return worst < 4e-6;
}

}  // namespace fmoe::test
