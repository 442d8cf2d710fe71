// SPDX-License-Identifier: MIT
#include <fmoe/base/random.hpp>

#include <cmath>

#include "../support/catch.hpp"

using fmoe::random_stream;

TEST_CASE("the same bits everywhere") {
  random_stream zero(0), other(42);
  CHECK(zero.bits() == 0xe220a8397b1dcdaf);  // the published sequence of SplitMix64
  CHECK(zero.bits() == 0x6e789e6aa1b965f4);
  const double normals[] = {0x1.581ce1ff0e4aep+0, 0x1.836ded897f3e4p+0, -0x1.7eadff448a868p-4,
                            -0x1.3d58eba8a8e99p-1};
  for (const double expected : normals) CHECK(other.normal() == expected);
  const double uniforms[] = {-0x1.dbbb39c646f3p-4, -0x1.39298392b29eap-1, -0x1.ae4492f5ef614p-2};
  for (const double expected : uniforms) CHECK(other.uniform() == expected);
  CHECK(other.bits() == 0xd72c1692509d2c5e);
}

TEST_CASE("moments and tails") {
  constexpr int count = 1'000'000;
  random_stream random(1);
  double normal[9] = {}, uniform[5] = {}, beyond[4] = {}, most = 0;
  for (int i = 0; i < count; ++i) {
    const double z = random.normal(), u = random.uniform();
    for (int k = 1; k < 9; ++k) normal[k] += std::pow(z, k) / count;
    for (int k = 1; k < 5; ++k) uniform[k] += std::pow(u, k) / count;
    for (int k = 1; k < 4; ++k) beyond[k] += (std::abs(z) > k) / static_cast<double>(count);
    most = std::max(most, std::abs(u));
  }
  // The moments of N(0, 1) are 0 1 0 3 0 15 0 105; four standard errors are allowed for each.
  const double of_normal[] = {1, 0, 1, 0, 3, 0, 15, 0, 105},
               variance[] = {0, 1, 2, 15, 96, 945, 10170, 135135, 2016000};
  for (int k = 1; k < 9; ++k)
    CHECK(std::abs(normal[k] - of_normal[k]) < 4 * std::sqrt(variance[k] / count));
  for (int k = 1; k < 4; ++k) {
    const double p = std::erfc(k / std::sqrt(2.0));
    CHECK(std::abs(beyond[k] - p) < 4 * std::sqrt(p / count));
  }
  const double of_uniform[] = {1, 0, 1 / 3., 0, 1 / 5.};
  for (int k = 1; k < 5; ++k)
    CHECK(std::abs(uniform[k] - of_uniform[k]) < 4 * std::sqrt(1. / count));
  CHECK(most <= 1);
  CHECK(most > 0.999);
}
