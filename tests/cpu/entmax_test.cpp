// SPDX-License-Identifier: MIT
#include <fmoe/backend/cpu/kernels/entmax.hpp>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

template <class T>
long double sum_of_entmax(const std::vector<T>& x, double alpha) {
  std::vector<T> y(x.size());
  cpu::entmax<T, arch>(x.data(), y.data(), x.size(), alpha);
  return std::accumulate(y.begin(), y.end(), 0.0L);
}

TEMPLATE_TEST_CASE("entmax sums to 1, also where all scores are nearly equal", "[cpu][entmax]",
                   float, double) {
  using T = TestType;
  std::mt19937 engine(3);
  const long double eps = std::numeric_limits<T>::epsilon();
  for (const double alpha : {1.3, 1.5, 2.0})
    for (const T base : {T(0), T(1000)})
      for (const T spread : {T(0), T(6.1e-5), T(1e-3), T(1)})
        for (const extent n : std::initializer_list<extent>{1, 2, 17, 100, 767, 3000, 20000}) {
          // Sanitizers take a second for each of the longest rows, which round most near 1,000.
          if (n == 20000 && !(base == 1000 && spread == T(6.1e-5))) continue;
          std::vector<T> x(n);
          for (T& v : x) v = base + spread * std::uniform_real_distribution<T>(0, 1)(engine);
          INFO("alpha " << alpha << " base " << base << " spread " << spread << " n " << n);
          // Rounding of the threshold and of its sum changes each of the n entries.
          CHECK(std::abs(sum_of_entmax(x, alpha) - 1) <=
                (8 + static_cast<long double>(n) / 4) * eps);
        }
}

}  // namespace
