// SPDX-License-Identifier: MIT
// Integers make every sum exact, so results are compared by their bits.
#include <fmoe/backend/cpu/kernels/gather.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "../support/catch.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

std::mt19937 engine(5);

TEMPLATE_TEST_CASE("gather is exact and touches nothing but its n columns", "[cpu][gather]", float,
                   double) {
  using T = TestType;
  const extent experts = 30;
  for (extent n = 0; n <= 70; ++n)
    for (const extent count : std::initializer_list<extent>{0, 1, 2, 3, 4, 5, 7, 8, 11, 30})
      for (const bool accumulate : {false, true}) {
        const extent stride = n + 2;
        // Entries that are not selected, and those between rows, must not be multiplied even by 0.
        std::vector<T> table(1 + experts * stride, std::numeric_limits<T>::infinity());
        std::vector<std::uint32_t> indices(experts), all(experts);
        for (extent e = 0; e < experts; ++e) all[e] = static_cast<std::uint32_t>(e);
        std::shuffle(all.begin(), all.end(), engine);
        std::copy_n(all.begin(), count, indices.begin());
        std::vector<T> values(count), c(n + 8, T(5));
        for (T& v : values) v = static_cast<T>(static_cast<int>(engine() % 17) - 8);
        std::vector<T> expected = c;
        for (extent i = 0; i < n; ++i) {
          double sum = accumulate ? 5 : 0;
          for (extent k = 0; k < count; ++k) {
            const int w = static_cast<int>(engine() % 17) - 8;
            table[1 + indices[k] * stride + i] = static_cast<T>(w);
            sum += static_cast<double>(values[k]) * w;
          }
          expected[3 + i] = static_cast<T>(sum);
        }
        const cpu::selected<T> s{values.data(), indices.data(), count},
            next{nullptr, all.data(), n % 2 ? experts : 0};
        cpu::gather<T, arch>(table.data() + 1, stride, n, s, next, c.data() + 3, accumulate);
        INFO("n " << n << " count " << count << " accumulate " << accumulate);
        REQUIRE(same_bits(c, expected));
      }
}

TEMPLATE_TEST_CASE("gather has the same bits in one call and in two", "[cpu][gather]", float,
                   double) {
  using T = TestType;
  std::uniform_real_distribution<T> real(-1, 1);
  const extent n = 45, count = 14;
  std::vector<T> table(count * n), values(count), once(n), twice(n), alone(n);
  for (auto* v : {&table, &values})
    for (T& x : *v) x = real(engine);
  std::vector<std::uint32_t> indices(count);
  for (extent k = 0; k < count; ++k) indices[k] = static_cast<std::uint32_t>(k);
  const cpu::selected<T> none{nullptr, nullptr, 0};
  cpu::gather<T, arch>(table.data(), n, n, {values.data(), indices.data(), count}, none,
                       once.data(), false);
  for (extent cut = 0; cut <= count; ++cut) {
    cpu::gather<T, arch>(table.data(), n, n, {values.data(), indices.data(), cut}, none,
                         twice.data(), false);
    const cpu::selected<T> rest{values.data() + cut, indices.data() + cut, count - cut};
    cpu::gather<T, arch>(table.data(), n, n, rest, none, twice.data(), true);
    REQUIRE(same_bits(once, twice));
  }
  for (extent i = 0; i < n; ++i)  // a column alone, in the first lane
    cpu::gather<T, arch>(table.data() + i, n, 1, {values.data(), indices.data(), count}, none,
                         alone.data() + i, false);
  REQUIRE(same_bits(once, alone));
}

}  // namespace
