// SPDX-License-Identifier: MIT
#include <fmoe/backend/cpu/kernels/softmax.hpp>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

std::mt19937 engine(9);

template <class T>
std::vector<T> softmax(const std::vector<T>& x) {
  std::vector<T> y(x.size());
  cpu::softmax<T, arch>(x.data(), y.data(), x.size());
  return y;
}

TEMPLATE_TEST_CASE("softmax is within a few units in the last place and sums to 1",
                   "[cpu][softmax]", float, double) {
  using T = TestType;
  const long double eps = std::numeric_limits<T>::epsilon();
  for (const T scale : {T(0.1), T(1), T(20)})
    for (const extent n :
         std::initializer_list<extent>{1, 2, 3, 15, 16, 17, 31, 64, 100, 1000, 21490}) {
      std::vector<T> x(n);
      for (T& v : x) v = std::normal_distribution<T>(-50, scale)(engine);
      const T most = *std::max_element(x.begin(), x.end());
      long double total = 0, sum = 0;
      for (const T v : x) total += std::exp(static_cast<long double>(v - most));
      const std::vector<T> y = softmax(x);
      INFO("n " << n << " scale " << scale);
      for (extent i = 0; i < n; ++i) {
        const long double expected = std::exp(static_cast<long double>(x[i] - most)) / total;
        REQUIRE(std::abs(y[i] - expected) <=
                3 * eps * expected + std::numeric_limits<T>::denorm_min());
        sum += y[i];
      }
      REQUIRE(std::abs(sum - 1) <= 4 * eps);
      std::vector<T> in_place(n + 2, T(7));
      std::copy(x.begin(), x.end(), in_place.begin() + 1);
      cpu::softmax<T, arch>(in_place.data() + 1, in_place.data() + 1, n);
      REQUIRE(std::memcmp(in_place.data() + 1, y.data(), n * sizeof(T)) == 0);
      REQUIRE((in_place.front() == 7 && in_place.back() == 7));
    }
}

TEMPLATE_TEST_CASE("softmax of infinities and NaN", "[cpu][softmax]", float, double) {
  using T = TestType;
  using limits = std::numeric_limits<T>;
  constexpr T nan = limits::quiet_NaN(), inf = limits::infinity(), huge = limits::max();
  REQUIRE(softmax<T>({}).empty());
  for (const T x : {T(0), T(-3), huge, -huge}) REQUIRE(softmax<T>({x}) == std::vector<T>{1});
  REQUIRE(softmax<T>({5, -inf, 5, -inf}) == std::vector<T>{T(0.5), 0, T(0.5), 0});
  REQUIRE(softmax<T>({huge, -huge, T(1e30)}) == std::vector<T>{1, 0, 0});
  for (const extent n : std::initializer_list<extent>{1, 2, 9, 16, 33, 70})
    for (extent at = 0; at < n; ++at)
      for (const T bad : {nan, -nan, inf}) {
        std::vector<T> x(n, T(-2));
        x[at] = bad;
        for (const T y : softmax(x)) REQUIRE(std::isnan(y));
        for (const T y : softmax(std::vector<T>(n, -inf))) REQUIRE(std::isnan(y));
      }
}

}  // namespace
