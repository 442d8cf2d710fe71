// SPDX-License-Identifier: MIT
#include <fmoe/backend/cpu/kernels/nonzeros.hpp>

#include <random>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;

TEMPLATE_TEST_CASE("what is not 0 is found, in order, and nothing behind the end is read",
                   "[nonzeros]", float, double) {
  std::mt19937 bits(1);
  for (extent n = 0; n < 70; ++n)
    for (const unsigned kept : {0u, 1u, 7u, 8u}) {
      std::vector<TestType> x(n);  // exactly this size, for the address sanitizer
      std::vector<std::pair<extent, TestType>> expected, found;
      for (extent i = 0; i < n; ++i)
        if (bits() % 8 < kept) expected.emplace_back(i, x[i] = static_cast<TestType>(i) + 1);
      cpu::each_nonzero<TestType, cpu::native_arch>(
          x.data(), n, [&](extent i, TestType v) { found.emplace_back(i, v); });
      CHECK(found == expected);
    }
}

TEST_CASE("NaN and the smallest numbers are not 0, and -0 is", "[nonzeros]") {
  const float x[] = {-0.0f, std::numeric_limits<float>::quiet_NaN(),
                     std::numeric_limits<float>::denorm_min(), 0, -1};
  std::vector<extent> found;
  cpu::each_nonzero<float, cpu::native_arch>(x, 5, [&](extent i, float) { found.push_back(i); });
  CHECK(found == std::vector<extent>{1, 2, 4});
}

}  // namespace
