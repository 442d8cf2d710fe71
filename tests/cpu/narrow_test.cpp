// SPDX-License-Identifier: MIT
// Narrowed rows, and their products by integers, compared with exact arithmetic.
#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/narrow.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

struct narrowed_row {
  cpu::narrowing of;
  std::vector<std::int16_t> q;  // as many as the row has, and the zeros behind them
};

narrowed_row narrowed(const std::vector<float>& v) {
  std::vector<float> to(round_up(v.size(), cpu::lanes<float, arch>) / 2, 1.f);
  narrowed_row r{cpu::narrow<arch>(v.data(), v.size(), to.data()), {}};
  r.q.resize(2 * to.size());
  std::memcpy(r.q.data(), to.data(), to.size() * sizeof(float));
  return r;
}

double norm(const std::vector<double>& v) {
  long double sum = 0;
  for (const double x : v) sum += static_cast<long double>(x) * static_cast<long double>(x);
  return static_cast<double>(std::sqrt(sum));
}

void check(const std::vector<float>& v) {
  const auto [of, q] = narrowed(v);
  std::vector<double> whole, lost, integers;
  for (extent i = 0; i < v.size(); ++i) {
    whole.push_back(static_cast<double>(v[i]));
    integers.push_back(q[i]);
    lost.push_back(whole[i] - static_cast<double>(of.scale) * q[i]);
  }
  INFO("of " << v.size() << " numbers, norm " << norm(whole));
  REQUIRE(of.is_usual());
  CHECK(norm(whole) <= static_cast<double>(of.norm));
  CHECK(norm(lost) <= static_cast<double>(of.lost));
  CHECK(norm(integers) < std::sqrt(0x1p31));
  CHECK(std::ranges::none_of(q, [](int n) { return n == -32768; }));
  CHECK(std::all_of(q.begin() + static_cast<std::ptrdiff_t>(v.size()), q.end(),
                    [](int n) { return n == 0; }));
  // A step is as small as the two limits allow, so hardly more is lost than rounding loses.
  const auto n = static_cast<double>(v.size());
  CHECK(static_cast<double>(of.lost) <=
        0.51 * std::sqrt(n) * static_cast<double>(of.scale) + 1e-6 * norm(whole) + 0x1p-125);
}

TEST_CASE("a narrowed row is as near as its bounds say", "[cpu][narrow]") {
  std::mt19937_64 bits(1);
  std::normal_distribution<float> normal;
  for (const extent n : std::initializer_list<extent>{1, 2, 7, 16, 33, 300, 769})
    for (const float scale : {1e-44f, 1e-38f, 1e-20f, 1.f, 3e5f, 1e12f}) {
      std::vector<float> v(n);
      for (float& x : v) x = scale * normal(bits);
      check(v);
      v[n / 2] *= 1e4f;
      check(v);
    }
  check(std::vector<float>(65));
}

TEST_CASE("rows whose integers are as large as they may be have products below 2^31",
          "[cpu][narrow]") {
  for (const extent n : std::initializer_list<extent>{1, 2, 4, 64, 1 << 12, (1 << 22) - 1})
    for (const float of : {1.f, -1.f, 0.7f}) {
      check(std::vector<float>(n, of));
      std::vector<float> half(n, of);  // all round up
      half[0] = of * 44000;
      for (extent i = 1; i < n; ++i) half[i] = of * 0.5002f;
      check(half);
    }
}

TEST_CASE("a row with NaN, infinity or a huge norm is not usual", "[cpu][narrow]") {
  for (const float x : {std::nanf(""), HUGE_VALF, -HUGE_VALF, 0x1p62f, 3e38f}) {
    std::vector<float> v(40, 0.5f);
    v[39] = x;
    const auto [of, q] = narrowed(v);
    CHECK_FALSE(of.is_usual());
    CHECK(std::ranges::all_of(q, [](int n) { return n == 0; }));
  }
}

template <class Pair>
void check_products() {
  std::mt19937 bits(2);
  std::uniform_int_distribution<int> any(-32767, 32767);
  const extent columns = cpu::panel_width<float, arch>;
  for (const extent rows : std::initializer_list<extent>{1, 2, 5, 12, 30})
    for (const extent depth : std::initializer_list<extent>{1, 8, 131}) {
      std::vector<Pair> a(rows * depth), b(depth * columns);
      for (auto* pairs : {&a, &b})
        for (Pair& p : *pairs)
          p = {static_cast<std::int16_t>(any(bits)), static_cast<std::int16_t>(any(bits))};
      a[0] = b[0] = {32767, 32767};
      std::vector<float> x(a.size()), c(rows * columns);
      std::memcpy(x.data(), a.data(), a.size() * sizeof(Pair));
      const cpu::gemm_panels<float> panels{reinterpret_cast<const std::byte*>(b.data()),
                                           &cpu::gemm_kernels_of<float, Pair, arch>};
      cpu::gemm<float, arch>({rows, columns, depth, x.data(), depth, panels, depth, c.data(),
                              columns, false, all, nullptr},
                             [](auto...) {});
      bool is_same = true;
      for (extent t = 0; t < rows; ++t)
        for (extent n = 0; n < columns; ++n) {
          std::uint32_t sum = 0;
          for (extent k = 0; k < depth; ++k) {
            const Pair p = a[t * depth + k], w = b[k * columns + n];
            sum += static_cast<std::uint32_t>(p.first * w.first) +
                   static_cast<std::uint32_t>(p.second * w.second);
          }
          is_same = is_same && sum == std::bit_cast<std::uint32_t>(c[t * columns + n]);
        }
      CHECK(is_same);
    }
}

TEST_CASE("products of pairs of integers are exact, and wrap around", "[cpu][narrow]") {
  check_products<cpu::int16_pair<false>>();
  if (cpu::has_fused_dots<arch>()) check_products<cpu::int16_pair<true>>();
}

}  // namespace
