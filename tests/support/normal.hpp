// SPDX-License-Identifier: MIT
// Normal numbers that every standard library draws alike, which std::normal_distribution does not
// promise.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>

namespace fmoe::test {

// Numbers from N(0, 1) by Marsaglia's polar method, which makes two at a time.
class normal_numbers {
 public:
  explicit normal_numbers(unsigned seed) : bits_(seed) {}

  float operator()() {
    if (has_other_) {
      has_other_ = false;
      return other_;
    }
    double x, y, square;  // squares of floats are exact in double, with and without fused products
    do {
      x = coordinate();
      y = coordinate();
      square = x * x + y * y;
    } while (square > 1 || square == 0);
    const double scale = std::sqrt(-2 * std::log(square) / square);
    other_ = static_cast<float>(x * scale);
    has_other_ = true;
    return static_cast<float>(y * scale);
  }

 private:
  float coordinate() {  // in [-1, 1)
    const float part = static_cast<float>(bits_()) * 0x1p-32f;
    return static_cast<float>(2 * std::min(part, 1 - 0x1p-24f) - 1.0);
  }

  std::mt19937 bits_;
  float other_ = 0;
  bool has_other_ = false;
};

}  // namespace fmoe::test
