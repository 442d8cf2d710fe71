// SPDX-License-Identifier: MIT
// Integers make every sum exact; other numbers are compared with the sums of each row by itself.
#include <fmoe/backend/cpu/kernels/sample.hpp>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

std::mt19937 engine(5);

constexpr extent experts = 30;

std::vector<std::uint32_t> shuffled() {
  std::vector<std::uint32_t> all(experts);
  for (extent e = 0; e < experts; ++e) all[e] = static_cast<std::uint32_t>(e);
  std::shuffle(all.begin(), all.end(), engine);
  return all;
}

template <class T, class S>
std::vector<T> sampled(const std::vector<T>& x, const std::vector<S>& table,
                       const std::vector<std::uint32_t>& indices, extent next) {
  std::vector<T> out(indices.size() + 1, T(7));
  const std::vector<std::uint32_t> all = shuffled();
  cpu::sample<T, arch>(x.data(), table.data(), x.size(), {nullptr, indices.data(), indices.size()},
                       {nullptr, all.data(), next}, out.data());
  REQUIRE(out.back() == 7);
  out.pop_back();
  return out;
}

TEMPLATE_TEST_CASE("products with selected rows are exact and read no other row", "[cpu][sample]",
                   float, double) {
  using T = TestType;
  const auto integer = [] { return static_cast<T>(static_cast<int>(engine() % 17) - 8); };
  for (extent n = 0; n <= 70; ++n)
    for (const extent count : std::initializer_list<extent>{0, 1, 2, 3, 4, 5, 7, 8, 11, 30}) {
      std::vector<T> x(n), table(experts * n, std::numeric_limits<T>::infinity());
      for (T& v : x) v = integer();
      std::vector<std::uint32_t> indices = shuffled();
      indices.resize(count);
      std::vector<T> expected;
      for (const std::uint32_t e : indices) {
        double sum = 0;
        for (extent i = 0; i < n; ++i) {
          table[e * n + i] = integer();
          sum += static_cast<double>(x[i]) * static_cast<double>(table[e * n + i]);
        }
        expected.push_back(static_cast<T>(sum));
      }
      INFO("n " << n << " count " << count);
      REQUIRE(sampled(x, table, indices, n % 2 ? experts : n % 4) == expected);
    }
}

TEMPLATE_TEST_CASE("a product has the same bits in any company", "[cpu][sample]", float, bf16,
                   f16) {
  using S = TestType;
  std::normal_distribution<float> normal;
  for (const extent n : std::initializer_list<extent>{1, 16, 31, 33, 100, 768}) {
    std::vector<float> x(n);
    std::vector<S> table(experts * n);
    for (float& v : x) v = normal(engine);
    for (S& v : table) v = convert<S>(normal(engine));
    const std::vector<std::uint32_t> all = shuffled();
    const std::vector<float> together = sampled(x, table, all, 3);
    for (extent k = 0; k < experts; ++k) {
      const std::vector<float> alone = sampled(x, table, {all[k]}, 0);
      INFO("n " << n << " row " << k);
      REQUIRE(std::memcmp(&alone[0], &together[k], sizeof(float)) == 0);
    }
  }
}

}  // namespace
