// SPDX-License-Identifier: MIT
// Compares arrays bit by bit: a NaN equals itself, and 0 is not -0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace fmoe::test {

// Tensors of one rank also have one shape.
template <class A, class B>
bool same_bits(const A& a, const B& b) {
  static_assert(std::is_same_v<decltype(a.data()[0]), decltype(b.data()[0])>);
  if constexpr (requires { a.shape() == b.shape(); })
    if (a.shape() != b.shape()) return false;
  return a.size() == b.size() &&
         (a.size() == 0 || std::memcmp(a.data(), b.data(), a.size() * sizeof(*a.data())) == 0);
}

// The same, but every NaN equals every other one: the compiler chooses which of two NaNs a sum
// keeps, and so its sign.
template <class A>
bool same_bits_or_nan(const A& a, const A& b) {
  const auto are_same = [](auto x, auto y) {
    return (std::isnan(x) && std::isnan(y)) || std::memcmp(&x, &y, sizeof(x)) == 0;
  };
  return a.shape() == b.shape() && std::equal(a.begin(), a.end(), b.begin(), are_same);
}

}  // namespace fmoe::test
