// SPDX-License-Identifier: MIT
// Routings [t, p, s] of any shape, and a token's coefficient of an expert by its definition.
#pragma once

#include "oracle.hpp"

namespace fmoe::test {

// About `kept` of the s entries of each head are not 0. These are multiples of 1/8 up to 2, so that
// sums of products are exact.
template <class T>
tensor<T, 3> random_routing(const std::array<extent, 3>& shape, unsigned seed, extent kept) {
  tensor<T, 3> g(shape);
  std::mt19937 bits(seed);
  for (extent k = 0; k < g.size(); ++k)
    if (bits() % shape[2] < kept) g.data()[k] = static_cast<T>(bits() % 16 + 1) / 8;
  return g;
}

// The same with rounded entries, so that the order of a sum shows in its bits.
template <class T>
tensor<T, 3> rounded_routing(const std::array<extent, 3>& shape, unsigned seed, extent kept) {
  tensor<T, 3> g = random_routing<T>(shape, seed, kept);
  for (extent k = 0; k < g.size(); ++k) g.data()[k] /= T(7) + static_cast<T>(k % 5);
  return g;
}

// q_t[i,j] = sum over heads of g1[t,p,i] g2[t,p,j].
template <class T>
double coefficient(const tensor<T, 3>& g1, const tensor<T, 3>& g2, extent t, extent i, extent j) {
  double q = 0;
  for (extent p = 0; p < g1.shape()[1]; ++p)
    q += static_cast<double>(g1(t, p, i)) * static_cast<double>(g2(t, p, j));
  return q;
}

template <class T>
tensor<T, 3> some_tokens(const tensor<T, 3>& g, extent first, extent count) {
  const auto [tokens, p, s] = g.shape();
  return {{count, p, s}, std::span<const T>(g.data() + first * p * s, count * p * s)};
}

}  // namespace fmoe::test
