// SPDX-License-Identifier: MIT
// Compares arrays bit by bit: a NaN equals itself, and 0 is not -0.
#pragma once

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

}  // namespace fmoe::test
