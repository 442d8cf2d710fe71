// SPDX-License-Identifier: MIT
// The sizes of the terms of a row's sums, which bound their rounding errors.
#pragma once

#include <cmath>
#include <vector>

#include <fmoe/evaluate.hpp>

#include "golden_case.hpp"
#include "value_of.hpp"

namespace fmoe::golden {

template <class T, std::size_t Rank>
tensor<double, Rank> absolute(const tensor<T, Rank>& t) {
  tensor<double, Rank> result(t.shape());
  for (extent i = 0; i < t.size(); ++i)
    result.data()[i] = std::abs(static_cast<double>(t.data()[i]));
  return result;
}

// Returns the largest sum of absolute values in each row of x W + b.
template <class T>
std::vector<double> magnitudes(const tensor<T, 2>& x, const parameter<T, 2>& weight,
                               const parameter<T, 1>& bias) {
  auto sums = value_of(einsum<"ti,ih->th">(absolute(x), absolute(weight)));
  std::vector<double> result;
  for (extent t = 0; t < sums.shape()[0]; ++t) {
    result.push_back(0);
    for (extent h = 0; h < sums.shape()[1]; ++h)
      result.back() = std::max(
          result.back(), sums(t, h) + (bias.empty() ? 0 : std::abs(static_cast<double>(bias(h)))));
  }
  return result;
}

}  // namespace fmoe::golden
