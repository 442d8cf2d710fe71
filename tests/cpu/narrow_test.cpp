// SPDX-License-Identifier: MIT
// Narrowed rows, and their products by integers, compared with exact arithmetic.
#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/screen.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "../support/catch.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

using cpu::integer_form;

struct narrowed_row {
  cpu::narrowing of;
  std::vector<int> q;  // as many as the row has, and the zeros behind them
};

template <class Integer>
std::vector<int> integers_of(const std::vector<float>& from) {
  std::vector<Integer> q(from.size() * sizeof(float) / sizeof(Integer));
  std::memcpy(q.data(), from.data(), from.size() * sizeof(float));
  return {q.begin(), q.end()};
}

narrowed_row narrowed(const std::vector<float>& v, integer_form form) {
  const extent width = cpu::lanes<float, arch>, quads = divide_up(v.size(), 4);
  std::vector<float> to(form == integer_form::int16  ? round_up(v.size(), width) / 2
                        : form == integer_form::int8 ? quads
                                                     : 2 * quads,
                        1.f);
  narrowed_row r{cpu::narrow<arch>(v.data(), v.size(), to.data(), form), {}};
  r.q = form == integer_form::int16 ? integers_of<std::int16_t>(to) : integers_of<std::int8_t>(to);
  if (form == integer_form::int16_in_halves) {
    for (extent i = 0; i < 4 * quads; ++i) r.q[i] = 256 * r.q[i] + r.q[4 * quads + i];
    r.q.resize(4 * quads);
  }
  return r;
}

void check(const std::vector<float>& v, integer_form form) {
  const auto [of, q] = narrowed(v, form);
  const auto scale = static_cast<double>(of.scale);
  double whole = 0, lost = 0, integers = 0;  // squares of norms
  for (extent i = 0; i < v.size(); ++i) {
    const auto x = static_cast<double>(v[i]), n = static_cast<double>(q[i]);
    whole += x * x;
    lost += (x - scale * n) * (x - scale * n);
    integers += n * n;
  }
  const double norm = std::sqrt(whole);
  INFO("of " << v.size() << " numbers, norm " << norm);
  REQUIRE(of.is_usual());
  CHECK(norm <= static_cast<double>(of.norm));
  CHECK(std::sqrt(lost) <= static_cast<double>(of.lost));
  CHECK(integers < 0x1p31);
  const auto most = static_cast<int>(cpu::greatest_of(form));
  const auto [least, greatest] = std::minmax_element(q.begin(), q.end());
  CHECK(-most <= *least);
  CHECK(*greatest <= most);
  CHECK(std::all_of(q.begin() + static_cast<std::ptrdiff_t>(v.size()), q.end(),
                    [](int n) { return n == 0; }));
  // A step is as small as the two limits allow, so hardly more is lost than rounding loses.
  const auto n = static_cast<double>(v.size());
  CHECK(static_cast<double>(of.lost) <= 0.51 * std::sqrt(n) * scale + 1e-6 * norm + 0x1p-125);
}

constexpr integer_form forms[] = {integer_form::int16, integer_form::int16_in_halves,
                                  integer_form::int8};

void check(const std::vector<float>& v) {
  for (const integer_form form : forms) check(v, form);
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
  for (const extent n : std::initializer_list<extent>{1, 2, 4, 64, 1 << 12})
    for (const float of : {1.f, -1.f, 0.7f}) {
      check(std::vector<float>(n, of));
      std::vector<float> half(n, of);  // all round up
      half[0] = of * 44000;
      for (extent i = 1; i < n; ++i) half[i] = of * 0.5002f;
      check(half);
    }
  check(std::vector<float>((1 << 22) - 1, 0.7f));  // no longer row is screened
}

TEST_CASE("a row with NaN, infinity or a huge norm is not usual", "[cpu][narrow]") {
  for (const float x : {std::nanf(""), HUGE_VALF, -HUGE_VALF, 0x1p62f, 3e38f}) {
    std::vector<float> v(40, 0.5f);
    v[39] = x;
    for (const integer_form form : forms) {
      const auto [of, q] = narrowed(v, form);
      CHECK_FALSE(of.is_usual());
      CHECK(std::ranges::all_of(q, [](int n) { return n == 0; }));
    }
  }
}

// Multiplies rows of `steps` numbers of 4 bytes by panels of as many for each column.
template <class S>
std::vector<float> products(
    const std::vector<float>& a, const std::vector<S>& b, extent rows, extent steps,
    const cpu::gemm_kernels<float>& kernels = cpu::gemm_kernels_of<float, S, arch>) {
  const extent columns = cpu::panel_width<float, arch>;
  std::vector<float> c(rows * columns);
  const cpu::gemm_panels<float> panels{reinterpret_cast<const std::byte*>(b.data()), &kernels};
  cpu::gemm<float, arch>({rows, columns, steps, a.data(), a.size() / rows, panels, steps, c.data(),
                          columns, false, all, nullptr},
                         [](auto...) {});
  return c;
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
      std::vector<float> x(a.size());
      std::memcpy(x.data(), a.data(), a.size() * sizeof(Pair));
      const std::vector<float> c = products(x, b, rows, depth);
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

TEST_CASE("products of 16 by 8 bits are exact, and wrap around", "[cpu][narrow]") {
  if (!cpu::has_narrow_columns<arch>()) return;
  std::mt19937 bits(2);
  const extent columns = cpu::panel_width<float, arch>;
  for (extent rows = 1; rows <= 30; ++rows)
    for (const extent steps : std::initializer_list<extent>{1, 4, 7, 16, 131}) {
      std::uniform_int_distribution<int> any(-128, rows == 30 ? -128 : 127);
      std::vector<std::int8_t> halves(rows * steps * 8);
      for (std::int8_t& h : halves) h = static_cast<std::int8_t>(any(bits));
      std::vector<cpu::int8_quad> b(steps * columns);
      for (auto& quad : b)
        for (std::int8_t& w : quad.of_k) w = static_cast<std::int8_t>(any(bits));
      std::vector<float> x(rows * steps * 2);
      std::memcpy(x.data(), halves.data(), halves.size());
      const std::vector<float> c = products(x, b, rows, steps, cpu::dot_kernels<arch>());
      bool is_same = !cpu::is_neon<arch> || same_bits(c, products(x, b, rows, steps));
      for (extent t = 0; t < rows; ++t)
        for (extent n = 0; n < columns; ++n) {
          std::int64_t sum = 0;
          for (extent k = 0; k < 4 * steps; ++k) {
            const auto* const of_row = halves.data() + t * steps * 8 + k;
            sum += (256 * of_row[0] + of_row[4 * steps]) * b[k / 4 * columns + n].of_k[k % 4];
          }
          is_same = is_same && static_cast<std::uint32_t>(sum) ==
                                   std::bit_cast<std::uint32_t>(c[t * columns + n]);
        }
      INFO(rows << " rows, " << steps << " steps");
      CHECK(is_same);
    }
}

}  // namespace
