// SPDX-License-Identifier: MIT
// A mixture by its definition: it adds each expert times its coefficients, one after the other.
#pragma once

#include <vector>

#include <fmoe/tensor.hpp>

namespace fmoe::test {

// sum(t, o) += coefficient(t) y(t, o), where y is the output of one expert for the tokens.
template <class T>
void add_expert(std::vector<double>& sum, const auto& coefficient, const tensor<T, 2>& y) {
  sum.resize(y.size());
  for (extent t = 0; t < y.shape()[0]; ++t)
    for (extent o = 0; o < y.shape()[1]; ++o)
      sum[t * y.shape()[1] + o] +=
          static_cast<double>(coefficient(t)) * static_cast<double>(y(t, o));
}

// sum(t, o) += bias(o).
template <class T>
void add_to_rows(std::vector<double>& sum, const tensor<T, 1>& bias) {
  for (extent i = 0; i < sum.size(); ++i)
    sum[i] += static_cast<double>(bias.data()[i % bias.size()]);
}

}  // namespace fmoe::test
