// SPDX-License-Identifier: MIT
// What random expressions must give: the oracle's result, and the magnitude to which errors are
// relative.
#pragma once

#include "oracle.hpp"
#include "random_expression.hpp"

namespace fmoe::test {

struct random_result {
  std::vector<double> values;
  double scale = 0;  // of the same expression without differences; 0 if it is exact
};

inline random_result result_of(const random_expression& e, unsigned seed) {
  random_result r{oracle(e.g)[e.root()]};
  if (e.exact()) return r;
  const random_expression positive(seed, true);
  const oracle magnitudes(positive.g);
  for (const double x : magnitudes[positive.root()]) r.scale = std::max(r.scale, std::abs(x));
  return r;
}

template <class T>
double error(const std::vector<T>& y, const random_result& expected) {
  double largest = 0;
  for (const double x : expected.values) largest = std::max(largest, std::abs(x));
  return relative_error(y.data(), expected.values) *
         (largest == 0 || expected.scale == 0 ? 1 : largest / std::max(largest, expected.scale));
}

}  // namespace fmoe::test
