// SPDX-License-Identifier: MIT
// Compiled once as it is, and once more as standard_cpp_test.cpp, without the words of g++ and
// clang.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

#include <fmoe/base/compiler.hpp>
#include "../support/catch.hpp"

using namespace fmoe::detail;

namespace {

// The upper half by long multiplication, digit by digit in base 2^16.
std::uint64_t upper_by_digits(std::uint64_t a, std::uint64_t b) {
  std::uint64_t digits[8] = {};
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      std::uint64_t carry = (a >> 16 * i & 0xffff) * (b >> 16 * j & 0xffff);
      for (int k = i + j; carry != 0; ++k) {
        carry += digits[k];
        digits[k] = carry & 0xffff;
        carry >>= 16;
      }
    }
  return digits[4] | digits[5] << 16 | digits[6] << 32 | digits[7] << 48;
}

}  // namespace

TEST_CASE("the upper half of a product", "[compiler]") {
  const std::uint64_t most = ~std::uint64_t{0};
  CHECK(upper_product(0, most) == 0);
  CHECK(upper_product(most, most) == most - 1);
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t a = random() >> i % 50, b = random();
    CHECK(upper_product(a, b) == upper_by_digits(a, b));
  }
}

TEST_CASE("vectors compute number by number", "[compiler]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const vector_of<float, 4> a{1, nan, -3, 4}, b{5, 6, -7, 4};
  const vector_of<float, 4> mixed = FMOE_SHUFFLED(a, b, 3, 4, 0, 7);
  CHECK(mixed[0] == 4);
  CHECK(mixed[1] == 5);
  CHECK(mixed[2] == 1);
  CHECK(mixed[3] == 4);
  using doubles = vector_of<double, 4>;
  const auto wide = FMOE_CONVERTED(a, doubles);
  const auto sum = a + b;
  CHECK(wide[2] == -3.0);
  CHECK(sum[2] == -10);
  CHECK(std::isnan(sum[1]));
  const auto chosen = FMOE_CHOSEN((a == a) & ~(a <= b), a, b);
  CHECK(chosen[0] == 5);
  CHECK(chosen[1] == 6);  // NaN is not greater
  CHECK(chosen[2] == -3);
  CHECK(chosen[3] == 4);
  vector_of<double, 2> d{2, 0};
  d += 3.0 * vector_of<double, 2>{1, -1};
  CHECK(d[0] == 5);
  CHECK(d[1] == -3);
  vector_of<std::int64_t, 2> counts{7, 7};
  counts -= vector_of<double, 2>{0, -0.5} != 0.0;
  CHECK(counts[0] == 7);
  CHECK(counts[1] == 8);
  const vector_of<std::uint32_t, 4> words{0x00018000u, 0xffff0000u, 1, 0};
  CHECK((words << 16)[0] == 0x80000000u);
  CHECK((words & 0xffff0000u)[0] == 0x00010000u);
  CHECK((words & 0xffff0000u)[1] == 0xffff0000u);
}

#if FMOE_X86_64
TEST_CASE("a CPU answers for the leaves that it has", "[compiler]") {
  unsigned words[4] = {};
  CHECK(ask_cpuid(1, 0, words));
  CHECK((words[3] >> 26 & 1u) == 1);  // SSE2
  CHECK_FALSE(ask_cpuid(0x7fffffff, 0, words));
}
#endif
