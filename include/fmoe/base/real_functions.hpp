// SPDX-License-Identifier: MIT
// exp, ln, powers and the tail of the normal distribution in double, with bits that depend on
// nothing but the number. Those of a C library may: MinGW-w64 (12.2) computes exp, pow and erfc
// with the x87 unit, whose precision is another on threads that Windows makes than on the first
// one.
#pragma once

#include <bit>
#include <cstdint>

#include <fmoe/base/pointwise_functions.hpp>

namespace fmoe::detail {

// A number with the operators that pointwise_functions need, and what a comparison of two says.
struct truth {
  bool holds;

  friend constexpr truth operator&(truth a, truth b) { return {a.holds && b.holds}; }
};
struct real {
  double value = 0;

  constexpr real() = default;
  explicit constexpr real(double v) : value(v) {}
  constexpr std::uint64_t bits() const { return std::bit_cast<std::uint64_t>(value); }

  friend constexpr real operator+(real a, real b) { return real(a.value + b.value); }
  friend constexpr real operator-(real a, real b) { return real(a.value - b.value); }
  friend constexpr real operator*(real a, real b) { return real(a.value * b.value); }
  friend constexpr real operator&(real a, real b) {
    return real(std::bit_cast<double>(a.bits() & b.bits()));
  }
  friend constexpr truth operator<(real a, real b) { return {a.value < b.value}; }
  friend constexpr truth operator>(real a, real b) { return {a.value > b.value}; }
  friend constexpr truth operator<=(real a, real b) { return {a.value <= b.value}; }
  friend constexpr truth operator==(real a, real b) { return {a.value == b.value}; }
};

struct real_operations {
  using scalar = double;
  using value = real;
  struct parts {
    real fraction, exponent;
  };

  static constexpr real fmadd(real a, real b, real c) { return a * b + c; }
  static constexpr real select(truth first, real a, real b) { return first.holds ? a : b; }
  static constexpr real divide(real a, real b) { return real(a.value / b.value); }
  // In two factors, because 2^n itself may not be representable.
  static constexpr real scale_by_power_of_two(real x, real n) {
    const real half = n * real(0.5) + rounder - rounder;
    return x * power_of_two(half) * power_of_two(n - half);
  }
  static constexpr parts parts_of(real x) {
    constexpr std::uint64_t fraction = (std::uint64_t{1} << 52) - 1;
    const auto exponent = static_cast<std::int64_t>(x.bits() >> 52) - 1023;
    return {real(std::bit_cast<double>((x.bits() & fraction) | real(1).bits())),
            real(static_cast<double>(exponent))};
  }

 private:
  // Added to it, an integer stands in the lowest bits, from where a shift moves it into the
  // exponent.
  static constexpr real rounder{0x1.8p52};
  static constexpr real power_of_two(real n) {
    return real(std::bit_cast<double>(((n + rounder).bits() << 52) + real(1).bits()));
  }
};

using real_functions = pointwise_functions<real_operations>;

inline double exponential(double x) { return real_functions::exponential(real(x)).value; }
inline double logarithm(double x) { return real_functions::logarithm(real(x)).value; }

// Returns the probability that a standard normal number is greater than x, for x >= 0.
inline double normal_tail(double x) { return real_functions::normal_tail(real(x)).value; }

// Returns x to a power; 0 for x <= 0.
inline double power_of(double x, double exponent) {
  return real_functions::evaluate<pointwise::power>(real(x), exponent).value;
}

}  // namespace fmoe::detail
