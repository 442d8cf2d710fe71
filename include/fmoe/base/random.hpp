// SPDX-License-Identifier: MIT
// Random numbers for initial weights. A seed gives the same bits on every compiler and instruction
// set, because all computation is on integers and each result is rounded once.
#pragma once

#include <cstdint>

namespace fmoe {

// SplitMix64 (Steele, Lea and Flood 2014).
class random_stream {
 public:
  explicit random_stream(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

  // Returns a multiple of 2^-52 in [-1, 1).
  double uniform() {
    return static_cast<double>(static_cast<std::int64_t>(bits()) >> 11) * 0x1p-52;
  }

  // Returns a number from N(0, 1), which only comparisons decide: algorithm N of C. F. F. Karney,
  // "Sampling exactly from the normal distribution", 2016, with uniform deviates of 64 bits. The
  // number is an integer plus a multiple of 2^-53, rounded once.
  double normal() {
    for (;;) {
      std::uint64_t k = 0;
      while (half_life()) ++k;
      if (!all_of(k * (k - 1), [&] { return half_life(); })) continue;  // k = 0 and 1 always pass
      const std::uint64_t x = bits();
      if (!all_of(k + 1, [&] { return accepts(k, x); })) continue;
      const double size = static_cast<double>(k) + static_cast<double>(x >> 11) * 0x1p-53;
      return bits() >> 63 ? -size : size;
    }
  }

 private:
  static bool all_of(std::uint64_t n, auto trial) {
    for (std::uint64_t i = 0; i < n; ++i)
      if (!trial()) return false;
    return true;
  }

  // Returns true with probability exp(-1/2). This is von Neumann's method: a falling run that
  // starts below 1/2 has even length.
  bool half_life() {
    bool even = true;
    for (std::uint64_t last = std::uint64_t{1} << 63;; even = !even) {
      const std::uint64_t next = bits();
      if (next >= last) return even;
      last = next;
    }
  }

  // Returns true with probability exp(-x (2k + x) / (2k + 2)), where x is a fraction of 2^64.
  bool accepts(std::uint64_t k, std::uint64_t x) {
    bool even = true;
    for (std::uint64_t last = x;; even = !even) {
      const std::uint64_t next = bits();
      if (next >= last) return even;
      const std::uint64_t die = (bits() >> 32) * (2 * k + 2) >> 32;  // a die of 2k + 2 sides
      const bool ends = die > 2 * k || (die == 2 * k && bits() >= x);
      if (ends) return even;
      last = next;
    }
  }

  std::uint64_t state_;
};

}  // namespace fmoe
