// SPDX-License-Identifier: MIT
// Checks a sum that is computed again without some pairs. The numbers are integers, so every order
// of summation is exact.
#include <fmoe/backend/cpu/kernels/exclude.hpp>

#include <random>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

TEMPLATE_TEST_CASE(
    "c[j, m] = sum over p and kept i of g[p, i] h[p, j] u[i, m] where a pair is left out",
    "[exclude]", float, double) {
  using T = TestType;
  std::mt19937 bits(1);
  for (const auto& [p, i, j, m] : {std::array<extent, 4>{1, 1, 1, 1},
                                   {3, 9, 11, 6},
                                   {2, 64, 3, 16},
                                   {2, 70, 5, 19},
                                   {3, 512, 3, 8},
                                   {8, 1030, 4, 33}}) {
    INFO(p << ' ' << i << ' ' << j << ' ' << m);
    const auto integers = [&](extent n) {
      std::vector<T> x(n);
      for (T& v : x) v = static_cast<T>(static_cast<int>(bits() % 7) - 3);
      return x;
    };
    const auto g = integers(p * i), h = integers(p * j), u = integers(i * m);
    // The operands are g, h and, if the result has another axis, u; these are the strides of the
    // axes in each.
    plan::exclude_step s{"",
                         {{}, {}, {}},
                         2,
                         {},
                         {j, m, {0, 1, 0}},
                         {i, 0, {1, 0, m}},
                         {{p, 0, {i, j, 0}}},
                         {},
                         {{m, 1, {0, 0, 1}}},
                         {},
                         {},
                         {},
                         false};
    std::vector<T> expected(j * m, T(99)), c(j * m + 8, T(99));
    for (extent b = 0; b < j; b += 2) {
      std::vector<bool> gone(i);
      for (extent a = 0; a < i; ++a)
        if (bits() % 3 == 0) {
          gone[a] = true;
          s.left_out.push_back(a);
        }
      s.groups.push_back(b);
      s.ends.push_back(s.left_out.size());
      for (extent q = 0; q < m; ++q) {
        T sum = 0;
        for (extent a = 0; a < i; ++a)
          for (extent k = 0; !gone[a] && k < p; ++k)
            sum += g[k * i + a] * h[k * j + b] * u[a * m + q];
        expected[b * m + q] = sum;
      }
    }
    const typename cpu::excluder<T, arch>::rows from{g.data(), h.data(), u.data()};
    for (const bool is_row : {false, true}) {
      s.is_row = is_row;
      std::ranges::fill(c, T(99));
      cpu::excluder<T, arch>(s, from, c.data()).run();
      CHECK(std::equal(expected.begin(), expected.end(), c.begin()));
    }
    CHECK(std::all_of(c.end() - 8, c.end(), [](T x) { return x == T(99); }));
  }
}

}  // namespace
