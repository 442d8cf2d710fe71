// SPDX-License-Identifier: MIT
// Integers make every sum exact, so results are compared by their bits; real numbers show that the
// bits of a row depend only on the row.
#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/int8_kernels.hpp>

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
using sizes = std::initializer_list<extent>;

template <class T, class Stored = T>
struct problem {
  extent rows, columns, depth;
  extent lda = depth + 3, ldc = columns + 5;
  std::vector<T> a, b, c;
  std::vector<Stored> panels;

  problem(extent m, extent n, extent k)
      : rows(m),
        columns(n),
        depth(k),
        a(m * lda + 1),
        b(k * n),
        c(m * ldc + 10),
        panels(std::max<extent>(1, cpu::packed_size<T, arch>(k, n))) {}

  template <class Value>
  problem& fill(Value value) {
    for (auto* v : {&a, &b, &c})
      for (T& x : *v) x = value();
    std::vector<extent> k_offsets(depth), n_offsets(columns);
    for (extent k = 0; k < depth; ++k) k_offsets[k] = k * columns;
    for (extent n = 0; n < columns; ++n) n_offsets[n] = n;
    std::vector<Stored> stored(b.size());
    for (extent i = 0; i < b.size(); ++i) stored[i] = convert<Stored>(b[i]);
    cpu::pack_panels<T, arch>(k_offsets, n_offsets, stored.data(), panels.data());
    return *this;
  }
  extent side_by_side = 4, cache = extent{1} << 20;
  static constexpr extent block = 20;  // every chunk is whole blocks

  // Computes the rows from `row` on, in chunks of k, at addresses one element off the alignment of
  // vectors.
  template <class Done>
  void run(extent row, extent count, extent chunk, bool accumulate, Done done) {
    const extent width = cpu::panel_width<T, arch>;
    extent k = 0;
    do {
      const extent ks = std::min(chunk, depth - k);
      const bool last = k + ks == depth;
      const auto* const all = reinterpret_cast<const std::byte*>(panels.data());
      const cpu::gemm_panels<T> from{all + k * width * sizeof(Stored),
                                     &cpu::gemm_kernels_of<T, Stored, arch>};
      cpu::gemm<T, arch>({count, columns, ks, a.data() + 1 + row * lda + k, lda, from, depth,
                          c.data() + 5 + row * ldc, ldc, accumulate || k > 0, block,
                          last ? nullptr : all, 2048, side_by_side, cache},
                         [&](auto... tile) {
                           if (last) done(tile...);
                         });
      k += ks;
    } while (k < depth);
  }
  T& at(extent m, extent n) { return c[5 + m * ldc + n]; }
};

std::mt19937 engine(7);

template <class T>
T small_integer() {
  return static_cast<T>(static_cast<int>(engine() % 17) - 8);
}
template <class T>
T real() {
  return std::uniform_real_distribution<T>(-1, 1)(engine);
}
TEMPLATE_TEST_CASE("gemm is exact, runs done once per element and touches nothing else",
                   "[cpu][gemm]", float, double) {
  const extent width = cpu::panel_width<TestType, arch>;
  const sizes widths{0,         1,         width - 1,     width,    width + 1,
                     2 * width, 4 * width, 5 * width + 3, 7 * width};
  for (const extent rows : sizes{0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 29})
    for (const extent columns : widths)
      for (const extent depth : sizes{0, 1, 2, 70, 150})
        for (const bool accumulate : {false, true}) {
          problem<TestType> p(rows, columns, depth);
          p.fill(small_integer<TestType>);
          auto expected = p.c;
          for (extent m = 0; m < rows; ++m)
            for (extent n = 0; n < columns; ++n) {
              std::int64_t sum = accumulate ? static_cast<std::int64_t>(p.at(m, n)) : 0;
              for (extent k = 0; k < depth; ++k)
                sum += static_cast<std::int64_t>(p.a[1 + m * p.lda + k] * p.b[k * columns + n]);
              expected[5 + m * p.ldc + n] = static_cast<TestType>(3 * sum);
            }
          extent calls_outside = 0;
          p.run(0, rows, depth == 150 ? 60 : 1000, accumulate,
                [&](extent row, extent count, extent column, extent wide) {
                  calls_outside +=
                      row + count > rows || column + wide > columns || wide > width || wide == 0;
                  for (extent m = row; m < row + count; ++m)
                    for (extent n = column; n < column + wide; ++n) p.at(m, n) *= 3;
                });
          INFO("rows " << rows << " columns " << columns << " depth " << depth << " accumulate "
                       << accumulate);
          REQUIRE(calls_outside == 0);
          REQUIRE(same_bits(p.c, expected));
        }
}

TEMPLATE_TEST_CASE("a row of gemm has the same bits alone, in any company and in chunks of k",
                   "[cpu][gemm]", float, double) {
  const extent rows = 40;
  problem<TestType> p(rows, 9 * cpu::panel_width<TestType, arch> + 3, 133);
  p.fill(real<TestType>);
  for (const bool accumulate : {false, true}) {
    const auto start = p.c;
    p.run(0, rows, p.depth, accumulate, [](auto...) {});
    const auto expected = p.c;
    for (const extent company : sizes{1, 2, 3, 4, 6, 7, 8, 9, 12, 13, 14, 15, 40})
      for (const extent chunk : sizes{133, 60, 20}) {
        p.c = start;
        for (extent row = 0; row < rows; row += company)
          p.run(row, std::min(company, rows - row), chunk, accumulate, [](auto...) {});
        INFO("in company of " << company << " in chunks of " << chunk);
        REQUIRE(same_bits(p.c, expected));
      }
    for (p.side_by_side = 1; p.side_by_side <= 8; ++p.side_by_side)
      for (const extent company : sizes{1, 2, 5}) {
        p.c = start;
        for (extent row = 0; row < rows; row += company)
          p.run(row, company, p.depth, accumulate, [](auto...) {});
        INFO("in company of " << company << ", " << p.side_by_side << " panels side by side");
        REQUIRE(same_bits(p.c, expected));
      }
    p.c = start;
  }
}

TEMPLATE_TEST_CASE("rows that leave L2 have the same bits, and done runs once for each element",
                   "[cpu][gemm]", float, double) {
  const extent rows = 100, width = cpu::panel_width<TestType, arch>;
  problem<TestType> p(rows, 7 * width + 3, 333);
  p.fill(real<TestType>);
  const auto start = p.c;
  const auto run = [&](extent panels_together) {
    p.c = start;
    p.cache = 2 * panels_together * 333 * width * sizeof(TestType);
    p.run(0, rows, p.depth, true, [&](extent row, extent count, extent column, extent wide) {
      for (extent m = row; m < row + count; ++m)
        for (extent n = column; n < column + wide; ++n) p.at(m, n) *= 3;
    });
    return p.c;
  };
  const auto expected = run(1000);
  for (const extent together : sizes{0, 1, 2, 3}) CHECK(same_bits(run(together), expected));
}

// Each height of a tile, and numbers of tiles from which some panels are widened once for all.
const sizes few_and_many{1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                         23, 29, 36, 43, 50, 57, 63, 64, 70, 77, 84, 85, 91, 98, 100};

TEMPLATE_TEST_CASE("panels of 16 bits give the bits of the same numbers widened", "[cpu][gemm]",
                   bf16, f16) {
  for (const extent rows : few_and_many)
    for (const extent columns :
         sizes{1, 33, 4 * cpu::panel_width<float, arch>, 7 * cpu::panel_width<float, arch> + 3})
      for (const extent chunk : sizes{171, 100}) {
        if (rows > 16 && columns != 33) continue;
        problem<float, TestType> narrow(rows, columns, 171);
        narrow.fill(real<float>);
        for (float& x : narrow.b) x = convert<float>(convert<TestType>(x));
        problem<float> wide(rows, columns, 171);
        wide.fill([at = extent{0}, &narrow]() mutable {  // a, b and c in turn
          const auto &a = narrow.a, &b = narrow.b, &c = narrow.c;
          const extent i = at++;
          return i < a.size()              ? a[i]
                 : i < a.size() + b.size() ? b[i - a.size()]
                                           : c[i - a.size() - b.size()];
        });
        const auto twice = [](auto& p) {
          return [&p](extent row, extent count, extent column, extent width) {
            for (extent m = row; m < row + count; ++m)
              for (extent n = column; n < column + width; ++n) p.at(m, n) *= 2;
          };
        };
        narrow.run(0, rows, chunk, true, twice(narrow));
        wide.run(0, rows, chunk, true, twice(wide));
        INFO("rows " << rows << " columns " << columns << " chunk " << chunk);
        REQUIRE(same_bits(narrow.c, wide.c));
      }
}

// Weights of 8 bits whose blocks lie along k, in a row for each column, and their values as floats.
template <class Q>
struct quantized_weights {
  extent depth, columns;
  detail::quantized_layout layout;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [k][n]

  quantized_weights(extent k, extent n)
      : depth(k),
        columns(n),
        layout(detail::dtype_of<Q>, k * n, {k, 1}),
        bytes(layout.bytes()),
        values(k * n) {
    auto* const integers = reinterpret_cast<std::int8_t*>(bytes.data());
    auto* const scales = reinterpret_cast<typename Q::scale*>(bytes.data() + layout.first_scale());
    for (extent i = 0; i < layout.size; ++i)
      integers[i] = static_cast<std::int8_t>(static_cast<int>(engine() % 256) - 128);
    for (extent s = 0; s < layout.scales(); ++s)
      scales[s] = convert<typename Q::scale>(
          std::ldexp(real<float>(), static_cast<int>(engine() % 40) - 24));
    for (extent column = 0; column < n; ++column)
      for (extent row = 0; row < k; ++row) {
        const extent i = column * k + row;
        values[row * n + column] =
            static_cast<float>(integers[i]) * convert<float>(scales[layout.scale_of(i)]);
      }
  }

  std::vector<std::byte> panels() const {
    std::vector<extent> k_offsets(depth), n_offsets(columns);
    for (extent k = 0; k < depth; ++k) k_offsets[k] = k;
    for (extent n = 0; n < columns; ++n) n_offsets[n] = n * depth;
    const auto& kernels = cpu::gemm_kernels_of<float, cpu::panel_int8<Q, arch>, arch>;
    const extent width = cpu::panel_width<float, arch>;
    std::vector<std::byte> packed(divide_up(columns, width) * kernels.bytes(depth) +
                                  cpu::panel_slack);
    cpu::pack_quantized<float, arch, Q>(k_offsets, n_offsets, layout, 0, bytes.data(),
                                        packed.data());
    return packed;
  }
};

TEMPLATE_TEST_CASE("panels of 8 bits give the bits of the same numbers widened", "[cpu][gemm]", q8,
                   q8c) {
  constexpr extent block = 256, width = cpu::panel_width<float, arch>;
  using plain = cpu::panel_int8<TestType, arch>;
  std::vector<const cpu::gemm_kernels<float>*> forms{&cpu::gemm_kernels_of<float, plain, arch>};
  if constexpr (plain::is_biased) {
    using shuffled = cpu::panel_int8<TestType, arch, cpu::int8_form::shuffled>;
    forms.push_back(&cpu::gemm_kernels_of<float, shuffled, arch>);
  }
  CHECK(std::ranges::count(forms, &cpu::int8_kernels<TestType, arch>()) == 1);
  for (const extent depth : sizes{1, 31, 64, 333})
    for (const extent columns : sizes{1, width, 2 * width + 3}) {
      const quantized_weights<TestType> weights(depth, columns);
      problem<float> wide(100, columns, depth);
      wide.fill([at = extent{0}, &wide, &weights]() mutable {  // a, b and c in turn
        const extent i = at++ - wide.a.size();
        return i < weights.values.size() ? weights.values[i] : real<float>();
      });
      const auto packed = weights.panels();
      const auto compute = [&](const cpu::gemm_panels<float>& panels, extent rows) {
        auto c = wide.c;
        cpu::gemm<float, arch>({rows, columns, depth, wide.a.data() + 1, wide.lda, panels, depth,
                                c.data() + 5, wide.ldc, true, block, nullptr},
                               [](auto...) {});
        return c;
      };
      for (const extent rows : few_and_many) {
        INFO("rows " << rows << " columns " << columns << " depth " << depth);
        const auto* const floats = reinterpret_cast<const std::byte*>(wide.panels.data());
        const auto expected = compute({floats, &cpu::gemm_kernels_of<float, float, arch>}, rows);
        for (const auto* const kernels : forms)
          REQUIRE(same_bits(compute({packed.data(), kernels}, rows), expected));
      }
    }
}

TEST_CASE("gemm passes NaN and infinity of one row to that row only", "[cpu][gemm]") {
  problem<float> p(9, 50, 20);
  p.fill(small_integer<float>);
  p.run(0, 9, 20, false, [](auto...) {});
  auto expected = p.c;
  p.a[1 + 4 * p.lda + 3] = NAN;
  p.run(0, 9, 20, false, [](auto...) {});
  for (extent n = 0; n < 50; ++n) {
    REQUIRE(std::isnan(p.at(4, n)));
    p.at(4, n) = expected[5 + 4 * p.ldc + n];
  }
  REQUIRE(same_bits(p.c, expected));
}

}  // namespace
