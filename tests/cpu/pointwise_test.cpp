// SPDX-License-Identifier: MIT
// Errors are counted in units in the last place of references in long double, over random bit
// patterns and over the ranges in which each function has its shape.
#include <fmoe/backend/cpu/kernels/pointwise.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

std::mt19937_64 engine(3);

constexpr pointwise all[] = {pointwise::relu,
                             pointwise::gelu,
                             pointwise::gelu_tanh,
                             pointwise::silu,
                             pointwise::sigmoid,
                             pointwise::exp,
                             pointwise::sqrt,
                             pointwise::negate,
                             pointwise::squared_relu,
                             pointwise::scale,
                             pointwise::threshold,
                             pointwise::inverse_sqrt,
                             pointwise::shift,
                             pointwise::tanh,
                             pointwise::log,
                             pointwise::abs,
                             pointwise::at_least,
                             pointwise::at_most,
                             pointwise::quotient,
                             pointwise::inverse,
                             pointwise::power,
                             pointwise::gelu_slope,
                             pointwise::gelu_tanh_slope,
                             pointwise::silu_slope};

long double reference(pointwise f, long double x, long double parameter) {
  switch (f) {
    case pointwise::relu: return x > 0 ? x : 0;
    case pointwise::gelu: return x * std::erfc(-x / std::sqrt(2.0L)) / 2;
    case pointwise::gelu_tanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0L)) * (x + 0.044715L * x * x * x)));
    case pointwise::silu: return x / (1 + std::exp(-x));
    case pointwise::sigmoid: return 1 / (1 + std::exp(-x));
    case pointwise::squared_relu: return x > 0 ? x * x : 0;
    case pointwise::exp: return std::exp(x);
    case pointwise::sqrt: return std::sqrt(x);
    case pointwise::inverse_sqrt: return 1 / std::sqrt(x);
    case pointwise::negate: return -x;
    case pointwise::scale: return x * parameter;
    case pointwise::shift: return x + parameter;
    case pointwise::threshold: return x >= parameter ? x : 0;
    case pointwise::tanh: return std::tanh(x);
    case pointwise::log: return std::log(x);
    case pointwise::abs: return std::abs(x);
    case pointwise::at_least: return std::max(x, parameter);
    case pointwise::at_most: return std::min(x, parameter);
    case pointwise::quotient: return x / parameter;
    case pointwise::inverse: return parameter / x;
    case pointwise::power: return x > 0 ? std::pow(x, parameter) : 0;
    case pointwise::gelu_slope:
      return std::erfc(-x / std::sqrt(2.0L)) / 2 +
             x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0L));
    case pointwise::gelu_tanh_slope: {
      const long double k = 2 * std::sqrt(2 / std::acos(-1.0L)),
                        u = k * (x + 0.044715L * x * x * x);
      return 1 / (1 + std::exp(-u)) +
             x * k * (1 + 0.134145L * x * x) / (2 + std::exp(u) + std::exp(-u));
    }
    case pointwise::silu_slope:
      return 1 / (1 + std::exp(-x)) + x / (2 + std::exp(x) + std::exp(-x));
  }
  return 0;
}

// Returns the distance in units in the last place of T; for subnormals this is the unit of the
// least normal number.
template <class T>
double distance(T x, long double to) {
  using limits = std::numeric_limits<T>;
  if (std::isnan(to)) return std::isnan(x) ? 0 : INFINITY;
  if (std::abs(to) >= std::ldexp(1.0L, limits::max_exponent))
    return std::isinf(x) && (x > 0) == (to > 0) ? 0 : INFINITY;
  int exponent = 0;
  std::frexp(to, &exponent);
  return static_cast<double>(
      std::abs(x - to) /
      std::ldexp(1.0L, std::max(exponent, limits::min_exponent) - limits::digits));
}

template <class T>
T any_bits() {
  const std::uint64_t bits = engine();
  T x;
  std::memcpy(&x, &bits, sizeof(T));
  return x;
}

template <class T>
double worst(pointwise f, T low, T high, double slope = 0) {
  std::vector<T> x(20000);
  std::uniform_real_distribution<T> uniform(low, high);
  for (extent i = 0; i < x.size(); ++i) {
    const T bits = any_bits<T>();
    x[i] = i % 4 == 0 && bits >= low && bits <= high ? bits : uniform(engine);
  }
  x.front() = low;
  x.back() = high;
  const T parameter = T(0.75);
  std::vector<T> y = x;
  cpu::apply<T, arch>(f, parameter, y.data(), 0, 1, y.size());
  double most = 0;
  for (extent i = 0; i < x.size(); ++i)
    most = std::max(most, distance(y[i], reference(f, x[i], parameter)) /
                              (1 + slope * std::abs(static_cast<double>(x[i]))));
  return most;
}

TEMPLATE_TEST_CASE("pointwise functions are accurate to a few units in the last place",
                   "[cpu][pointwise]", float, double) {
  using T = TestType;
  constexpr bool single = sizeof(T) == 4;
  const T huge = std::numeric_limits<T>::max(), edge = T(single ? 88.7 : 709.7),
          tail = T(single ? 12.5 : 36);
  const T under = T(single ? -106 : -748), normal = T(single ? -83 : -700);
  for (const pointwise f : {pointwise::relu, pointwise::negate, pointwise::threshold,
                            pointwise::abs, pointwise::at_least, pointwise::at_most})
    for (const T range : {T(1), huge / 4}) CHECK(worst<T>(f, -range, range) == 0);
  CHECK(worst<T>(pointwise::scale, -10, 10) <= 0.51);
  CHECK(worst<T>(pointwise::sqrt, 0, huge) <= 0.51);
  CHECK(worst<T>(pointwise::inverse_sqrt, std::numeric_limits<T>::min(), huge) <= 1.5);
  CHECK(worst<T>(pointwise::shift, -10, 10) <= 0.51);
  CHECK(worst<T>(pointwise::quotient, -10, 10) <= 0.51);
  CHECK(worst<T>(pointwise::inverse, std::numeric_limits<T>::min(), 10) <= 0.51);
  CHECK(worst<T>(pointwise::log, 0, huge) <= 1.5);
  CHECK(worst<T>(pointwise::log, T(0.5), T(2)) <= 1.5);
  for (const T range : {T(0.1), T(1), T(10), huge / 4})
    CHECK(worst<T>(pointwise::tanh, -range, range) <= 2.5);
  CHECK(worst<T>(pointwise::squared_relu, -10, 10) <= 0.51);
  for (const T to : {T(1), edge, T(4 * edge)}) CHECK(worst<T>(pointwise::exp, -to, to) <= 1.5);
  CHECK(worst<T>(pointwise::exp, under, normal) <= 1.5);
  for (const T to : {T(1), T(20), T(-normal)}) {
    CHECK(worst<T>(pointwise::sigmoid, -to, to) <= 3);
    CHECK(worst<T>(pointwise::silu, -to, to) <= 4);
  }
  CHECK(worst<T>(pointwise::sigmoid, 2 * under, normal) <= 1.5);
  CHECK(worst<T>(pointwise::gelu, -1, 1) <= (single ? 6 : 9));
  CHECK(worst<T>(pointwise::gelu, -tail, -1) <= (single ? 7 : 10));
  CHECK(worst<T>(pointwise::gelu, 0, huge) <= (single ? 6 : 9));
  // The rounding of the argument is multiplied by the slope of exp there.
  CHECK(worst<T>(pointwise::gelu_tanh, -1, huge / 4) <= 4);
  CHECK(worst<T>(pointwise::gelu_tanh, -9, -1, 4) <= 6);
}

// Slopes cross 0, so their errors count in units of 1.
TEMPLATE_TEST_CASE("derivatives are accurate to a few roundings of 1", "[cpu][pointwise]", float,
                   double) {
  using T = TestType;
  for (const pointwise f :
       {pointwise::gelu_slope, pointwise::gelu_tanh_slope, pointwise::silu_slope})
    for (const T range : {T(1), T(8), T(50), T(1000)}) {
      std::uniform_real_distribution<T> uniform(-range, range);
      double worst = 0;
      for (int i = 0; i < 20000; ++i) {
        const T x = uniform(engine);
        T y = x;
        cpu::apply<T, arch>(f, T(0), &y, 0, 1, 1);
        worst = std::max(worst, static_cast<double>(std::abs(y - reference(f, x, 0))));
      }
      INFO(name_of(f) << " up to " << range << ": " << worst);
      CHECK(worst <= 6 * static_cast<double>(std::numeric_limits<T>::epsilon()));
    }
  constexpr T inf = std::numeric_limits<T>::infinity();
  for (const pointwise f :
       {pointwise::gelu_slope, pointwise::gelu_tanh_slope, pointwise::silu_slope})
    for (const T x : {inf, -inf, T(1e30), T(-1e30)}) {
      T y = x;
      cpu::apply<T, arch>(f, T(0), &y, 0, 1, 1);
      CHECK(std::abs(y - T(x > 0)) <= T(1e-30));
    }
}

TEMPLATE_TEST_CASE("quotients and roots are rounded once", "[cpu][pointwise]", float, double) {
  using T = TestType;
  using v = cpu::vec<T, arch>;
  std::uniform_real_distribution<T> number(0, 1);
  for (int i = 0; i < 1000; ++i) {
    const T a = number(engine), b = number(engine);
    T quotient[cpu::lanes<T, arch>], root[cpu::lanes<T, arch>];
    cpu::store<T, arch>(quotient, cpu::divide<T, arch>(v(a), v(b)));
    cpu::store<T, arch>(root, cpu::square_root<T, arch>(v(a)));
    REQUIRE(quotient[0] == a / b);
    REQUIRE(root[0] == std::sqrt(a));
  }
}

TEMPLATE_TEST_CASE("a power is one of exp and log", "[cpu][pointwise]", float, double) {
  using T = TestType;
  CHECK(worst<T>(pointwise::power, T(0.01), T(100), 1) <= 12);  // the rounding of the logarithm
  const auto of = [](T x, T parameter) {
    cpu::apply<T, arch>(pointwise::power, parameter, &x, 0, 1, 1);
    return x;
  };
  for (const T x : {T(1e-30), T(0.3), T(5), T(1e30)}) CHECK(of(x, 0) == 1);
  for (const T x : {T(0), T(-0.0), T(-5)})
    for (const T parameter : {T(0), T(0.5), T(-1)}) CHECK(of(x, parameter) == 0);
}

TEMPLATE_TEST_CASE("pointwise functions of NaN, infinity and zero", "[cpu][pointwise]", float,
                   double) {
  using T = TestType;
  constexpr T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  const auto of = [](pointwise f, T x) {
    cpu::apply<T, arch>(f, T(2), &x, 0, 1, 1);
    return x;
  };
  for (const pointwise f : all)
    for (const T sign : {T(1), T(-1)}) REQUIRE(std::isnan(of(f, std::copysign(nan, sign))));
  for (const pointwise f : {pointwise::gelu, pointwise::gelu_tanh, pointwise::silu}) {
    CHECK(std::isnan(of(f, -inf)));
    CHECK(of(f, inf) == inf);
    CHECK(of(f, T(-1e30)) == 0);
    CHECK(of(f, T(1e30)) == T(1e30));
    CHECK(of(f, 0) == 0);
  }
  CHECK(of(pointwise::relu, inf) == inf);
  CHECK(of(pointwise::relu, -inf) == 0);
  CHECK(!std::signbit(of(pointwise::relu, T(-0.0))));
  CHECK(of(pointwise::sigmoid, inf) == 1);
  CHECK(of(pointwise::sigmoid, -inf) == 0);
  CHECK(of(pointwise::sigmoid, 0) == T(0.5));
  CHECK(of(pointwise::exp, inf) == inf);
  CHECK(of(pointwise::exp, -inf) == 0);
  CHECK(of(pointwise::exp, 0) == 1);
  CHECK(std::isnan(of(pointwise::sqrt, -1)));
  CHECK(of(pointwise::inverse_sqrt, 0) == inf);
  CHECK(of(pointwise::inverse_sqrt, inf) == 0);
  CHECK(of(pointwise::shift, -inf) == -inf);
  CHECK(std::signbit(of(pointwise::negate, 0)));
  CHECK(!std::signbit(of(pointwise::negate, T(-0.0))));
  CHECK(of(pointwise::threshold, 2) == 2);
  CHECK(of(pointwise::threshold, std::nextafter(T(2), T(0))) == 0);
  CHECK(of(pointwise::threshold, -inf) == 0);
  CHECK(of(pointwise::tanh, inf) == 1);
  CHECK(of(pointwise::tanh, -inf) == -1);
  CHECK(of(pointwise::tanh, 0) == 0);
  CHECK(of(pointwise::log, 0) == -inf);
  CHECK(of(pointwise::log, inf) == inf);
  CHECK(of(pointwise::log, 1) == 0);
  CHECK(std::isnan(of(pointwise::log, -1)));
  CHECK(of(pointwise::abs, -inf) == inf);
  CHECK(of(pointwise::at_least, -inf) == 2);
  CHECK(of(pointwise::at_most, inf) == 2);
  CHECK(of(pointwise::quotient, -inf) == -inf);
  CHECK(of(pointwise::inverse, 0) == inf);
  CHECK(of(pointwise::inverse, -inf) == 0);
}

TEMPLATE_TEST_CASE("a number's result does not depend on its place, and nothing else is touched",
                   "[cpu][pointwise]", float, double) {
  using T = TestType;
  const extent rows = 3, ldc = 40;
  for (const pointwise f : all)
    for (extent columns = 0; columns < 37; ++columns)
      for (extent offset = 0; offset < 3; ++offset) {
        std::vector<T> c(rows * ldc + 5), expected;
        for (T& x : c) x = std::uniform_real_distribution<T>(-5, 5)(engine);
        expected = c;
        for (extent m = 0; m < rows; ++m)
          for (extent n = 0; n < columns; ++n)
            cpu::apply<T, arch>(f, T(0.5), &expected[offset + m * ldc + n], 0, 1, 1);
        cpu::apply<T, arch>(f, T(0.5), c.data() + offset, ldc, rows, columns);
        INFO(name_of(f) << " " << columns);
        REQUIRE(std::memcmp(c.data(), expected.data(), c.size() * sizeof(T)) == 0);
      }
}

TEMPLATE_TEST_CASE("two operands are joined tile by tile, or with a row that repeats",
                   "[cpu][pointwise]", float, double) {
  using T = TestType;
  const extent rows = 3, ldc = 40;
  for (const extent ldo : std::initializer_list<extent>{0, 38})
    for (extent columns = 0; columns < 37; ++columns)
      for (const auto what :
           {pass_kind::add, pass_kind::multiply, pass_kind::divide, pass_kind::max, pass_kind::min,
            pass_kind::keep, pass_kind::drop, pass_kind::above}) {
        std::vector<T> c(rows * ldc + 1), expected,
            other(1 + (ldo == 0 ? columns : 2 * ldo + columns));
        for (auto* v : {&c, &other})
          for (T& x : *v) x = static_cast<T>(engine() % 17) - 8;
        expected = c;
        for (extent m = 0; m < rows; ++m)
          for (extent n = 0; n < columns; ++n) {
            const T o = other[1 + m * ldo + n];
            T& e = expected[1 + m * ldc + n];
            switch (what) {
              case pass_kind::add: e += o; break;
              case pass_kind::multiply: e *= o; break;
              case pass_kind::divide: e /= o; break;
              case pass_kind::max: e = std::max(e, o); break;
              case pass_kind::min: e = std::min(e, o); break;
              case pass_kind::keep: e = o > 0 ? e : 0; break;
              case pass_kind::drop: e = o > 0 ? 0 : e; break;
              case pass_kind::above: e = e > o ? e : 0; break;
              case pass_kind::map: break;
            }
          }
        cpu::join<T, arch>(what, c.data() + 1, ldc, rows, columns, other.data() + 1, ldo);
        INFO(name_of(what) << ' ' << columns);
        for (extent i = 0; i < c.size(); ++i)
          REQUIRE((c[i] == expected[i] || (std::isnan(c[i]) && std::isnan(expected[i]))));
      }
}

TEMPLATE_TEST_CASE("NaN in either operand", "[cpu][pointwise]", float, double) {
  using T = TestType;
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  const auto of = [](pass_kind what, T x, T o) {
    cpu::join<T, arch>(what, &x, 0, 1, 1, &o, 0);
    return x;
  };
  for (const auto what :
       {pass_kind::add, pass_kind::multiply, pass_kind::divide, pass_kind::max, pass_kind::min}) {
    CHECK(std::isnan(of(what, nan, 1)));
    CHECK(std::isnan(of(what, 1, nan)));
  }
  CHECK(std::isnan(of(pass_kind::keep, nan, 1)));
  CHECK(of(pass_kind::keep, nan, 0) == 0);
  CHECK(of(pass_kind::keep, 1, nan) == 0);
  CHECK(of(pass_kind::drop, 1, nan) == 1);
  CHECK(std::isnan(of(pass_kind::above, nan, 1)));
  CHECK(of(pass_kind::above, 1, nan) == 0);
}

}  // namespace
