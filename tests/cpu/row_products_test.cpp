// SPDX-License-Identifier: MIT
// Checks that products of rows have the bits of gemm's columns.
#include <fmoe/backend/cpu/kernels/row_products.hpp>

#include <cstring>
#include <random>
#include <vector>

#include <fmoe/backend/cpu/kernels/gemm.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

TEMPLATE_TEST_CASE("a transposed block is transposed", "[cpu][row_products]", float, double) {
  using T = TestType;
  constexpr extent n = cpu::lanes<T, arch>;
  std::array<cpu::vec<T, arch>, n> rows;
  T numbers[n][n], turned[n];
  for (extent i = 0; i < n; ++i) {
    for (extent j = 0; j < n; ++j) numbers[i][j] = static_cast<T>(i * n + j);
    rows[i] = cpu::load<T, arch>(numbers[i]);
  }
  cpu::transpose<T, arch>(rows);
  for (extent i = 0; i < n; ++i) {
    cpu::store<T, arch>(turned, rows[i]);
    for (extent j = 0; j < n; ++j) CHECK(turned[j] == numbers[j][i]);
  }
}

TEMPLATE_TEST_CASE("row products have the bits of gemm", "[cpu][row_products]", float, double) {
  using T = TestType;
  constexpr extent n = cpu::lanes<T, arch>;
  std::mt19937 engine(3);
  std::uniform_real_distribution<T> real(-1, 1);
  for (const extent depth : std::initializer_list<extent>{1, 2, 15, 16, 17, 64, 100, 257, 600})
    for (const extent block : std::initializer_list<extent>{16, 20, 256}) {
      const extent stride = round_up(depth, extent{16});
      std::vector<T> table(n * stride), x(8 * depth), panel(cpu::packed_size<T, arch>(depth, n)),
          c(8 * n), expected(8 * n);
      for (auto* v : {&table, &x})
        for (T& number : *v) number = real(engine);
      std::vector<extent> k_offsets(depth), n_offsets(n);
      for (extent k = 0; k < depth; ++k) k_offsets[k] = k;
      for (extent i = 0; i < n; ++i) n_offsets[i] = i * stride;
      cpu::pack_panels<T, arch>(k_offsets, n_offsets, table.data(), panel.data());
      cpu::gemm<T, arch>(
          {8,
           n,
           depth,
           x.data(),
           depth,
           {reinterpret_cast<const std::byte*>(panel.data()), &cpu::gemm_kernels_of<T, T, arch>},
           depth,
           expected.data(),
           n,
           false,
           block,
           nullptr},
          [](auto...) {});
      const T *rows[n], *xs[8], *first[] = {x.data()};
      T *cs[8], *one[] = {c.data()};
      for (extent i = 0; i < n; ++i) rows[i] = table.data() + i * stride;
      for (extent r = 0; r < 8; ++r) {
        xs[r] = x.data() + r * depth;
        cs[r] = c.data() + r * n;
      }
      INFO("depth " << depth << " block " << block);
      cpu::row_products<T, arch, T, 1>(first, rows, depth, block, one);
      REQUIRE(std::memcmp(c.data(), expected.data(), n * sizeof(T)) == 0);
      cpu::row_products<T, arch, T, 8>(xs, rows, depth, block, cs);
      REQUIRE(std::memcmp(c.data(), expected.data(), c.size() * sizeof(T)) == 0);
    }
}

}  // namespace
