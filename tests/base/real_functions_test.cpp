// SPDX-License-Identifier: MIT
#include <fmoe/base/real_functions.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "../support/catch.hpp"
#include "../support/x87.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

std::vector<double> numbers(double low, double high) {
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<double> one(low, high);
  std::vector<double> x(10'000);
  for (double& v : x) v = one(engine);
  return x;
}

// The greatest error over the numbers, relative to the right value.
template <class F, class G>
double greatest_error(const std::vector<double>& x, const F& f, const G& right) {
  double most = 0;
  for (const double v : x) most = std::max(most, std::abs(f(v) / right(v) - 1));
  return most;
}

TEST_CASE("exp, ln, powers and the normal tail have the last digits of the C library's") {
  CHECK(greatest_error(numbers(-700, 700), detail::exponential,
                       [](double x) { return std::exp(x); }) < 7e-16);
  CHECK(greatest_error(numbers(1.5, 1e9), detail::logarithm, [](double x) { return std::log(x); }) <
        7e-16);
  for (const double exponent : {0.3, 1.0, 2.5, 10.0, 1000.0})
    CHECK(greatest_error(
              numbers(0.8, 1), [=](double x) { return detail::power_of(x, exponent); },
              [=](double x) { return std::pow(x, exponent); }) < 1e-15 + exponent * 1e-16);
  CHECK(greatest_error(numbers(0, 10), detail::normal_tail, [](double x) {
          return static_cast<double>(std::erfc(x * std::sqrt(0.5L)) / 2);
        }) < 2e-15);
}

TEST_CASE("edges of exp, ln and powers") {
  constexpr double infinity = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(detail::exponential(0) == 1);
  CHECK(detail::exponential(-infinity) == 0);
  CHECK(detail::exponential(-1e300) == 0);
  CHECK(detail::exponential(infinity) == infinity);
  CHECK(std::isnan(detail::exponential(nan)));
  CHECK(detail::exponential(-744) == std::exp(-744.0));  // a subnormal number
  CHECK(detail::logarithm(0) == -infinity);
  CHECK(detail::logarithm(1) == 0);
  CHECK(detail::logarithm(infinity) == infinity);
  CHECK(std::isnan(detail::logarithm(-1)));
  CHECK(detail::logarithm(5e-324) == std::log(5e-324));
  CHECK(detail::power_of(0, 0.5) == 0);
  CHECK(detail::power_of(1, 1000) == 1);
}

TEST_CASE("no bit of them depends on the precision of the x87 unit") {
  const auto all = [] {
    std::vector<double> y;
    for (const double x : numbers(0, 20)) {
      y.push_back(detail::exponential(-x));
      y.push_back(detail::logarithm(x));
      y.push_back(detail::power_of(x, 3.7));
      y.push_back(detail::normal_tail(x));
    }
    return y;
  };
  const auto y = at_both_precisions(all);
  CHECK(std::ranges::equal(y[0], y[1]));
}

}  // namespace
