// SPDX-License-Identifier: MIT
// The oracle of products that round their rows to 8 bits is a plain loop over the groups. Every
// level of instruction sets has the loop's bits.
#include <fmoe/backend/cpu/kernels/int8_product.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <fmoe/arrays/quantized.hpp>

#include "../support/catch.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;
using sizes = std::initializer_list<extent>;

constexpr extent group = q8::block;

// Multiplies and adds as the kernels do.
float multiply_add(float a, float b, float c) {
  if constexpr (cpu::is_sse<arch>) return static_cast<float>(a * b) + c;
  else return std::fma(a, b, c);
}

struct problem {
  extent rows, depth, columns;
  bool k_is_contiguous = false;
  std::vector<float> x = std::vector<float>(rows * (depth + 3));
  tensor<q8, 2> w{};

  float& row(extent m, extent k) { return x[m * (depth + 3) + k]; }
  float row_or_0(extent m, extent k) { return k < depth ? row(m, k) : 0; }

  // Fills rows, and weights along whose summed axis the blocks lie.
  problem& fill(const auto& value) {
    for (float& v : x) v = value();
    tensor<float, 2> floats =
        k_is_contiguous ? tensor<float, 2>({columns, depth}) : tensor<float, 2>({depth, columns});
    for (extent i = 0; i < floats.size(); ++i) floats.data()[i] = value();
    w = quantized<q8>(floats, k_is_contiguous ? 1 : 0);
    return *this;
  }

  extent place(extent k, extent n) const {
    return k_is_contiguous ? n * depth + k : k * columns + n;
  }
  detail::quantized_layout layout() const { return {dtype::q8, depth * columns, w.blocks()}; }
  const std::byte* stored() const {
    return static_cast<const std::byte*>(w.shared_storage()->data());
  }
  int integer(extent k, extent n) const {
    return k < depth ? static_cast<int>(static_cast<std::int8_t>(stored()[place(k, n)])) : 0;
  }
  float scale(extent k, extent n) const {
    const auto* const scales = reinterpret_cast<const f16*>(stored() + layout().first_scale());
    return convert<float>(scales[layout().scale_of(place(k, n))]);
  }

  // The sums continue those that `c` has.
  void add_plain(std::vector<float>& c) {
    for (extent m = 0; m < rows; ++m)
      for (extent k0 = 0; k0 < depth; k0 += group) {
        float most = 0;
        for (extent k = k0; k < k0 + group; ++k) most = std::max(most, std::abs(row_or_0(m, k)));
        const float of_row = most / 127, inverse = most == 0 ? 0 : 127 / most;
        for (extent n = 0; n < columns; ++n) {
          int sum = 0;
          for (extent k = k0; k < k0 + group; ++k)
            sum += static_cast<int>(std::nearbyint(row_or_0(m, k) * inverse)) * integer(k, n);
          float& to = c[m * columns + n];
          to = multiply_add(static_cast<float>(sum), of_row * scale(k0, n), to);
        }
      }
  }

  void add_by_kernels(std::vector<float>& c, bool accumulate, extent side_by_side = 4,
                      cpu::int8_step by = cpu::int8_step_here<arch>()) {
    std::vector<extent> k_offsets, n_offsets;
    for (extent k = 0; k < depth; ++k) k_offsets.push_back(place(k, 0));
    for (extent n = 0; n < columns; ++n) n_offsets.push_back(place(0, n));
    const auto& kernels = cpu::int8_product_kernels<arch>(by);
    const extent panels = divide_up(columns, cpu::panel_width<float, arch>),
                 groups = divide_up(depth, group), stride = groups * (group + 2) + 5;
    std::vector<std::byte> packed(panels * kernels.bytes(groups));
    for (extent p = 0; p < panels; ++p)
      cpu::pack_int8_panel<arch>(k_offsets, n_offsets, layout(), 0, stored(), p, packed.data(), by);
    std::vector<float> in(rows * stride, std::numeric_limits<float>::quiet_NaN());
    cpu::round_rows_to_int8<arch>(x.data(), depth + 3, rows, depth, in.data(), stride, by);
    cpu::gemm<float, arch>({.rows = rows,
                            .columns = columns,
                            .depth = groups,
                            .a = in.data(),
                            .lda = stride,
                            .panels = {packed.data(), &kernels},
                            .panel_depth = groups,
                            .c = c.data(),
                            .ldc = columns,
                            .accumulate = accumulate,
                            .block = all,
                            .next = nullptr,
                            .side_by_side = side_by_side},
                           [](auto...) {});
  }
};

// What this CPU has an instruction for.
std::vector<cpu::int8_step> steps_here() {
  std::vector<cpu::int8_step> steps{cpu::int8_step::floats};
  if (cpu::has_int8_dots<arch>()) steps.push_back(cpu::int8_step::quads);
  if (cpu::int8_step_here<arch>() == cpu::int8_step::matrices)
    steps.push_back(cpu::int8_step::matrices);
  return steps;
}

TEST_CASE("products that round their rows to 8 bits have the bits of a plain loop") {
  std::mt19937 engine(11);
  std::normal_distribution<float> normal;
  for (const extent rows : sizes{1, 2, 3, 4, 5, 6, 7, 11, 13})
    for (const extent depth : sizes{1, 31, 32, 33, 160, 321})
      for (const extent columns : sizes{1, 33, 130})
        for (const bool k_is_contiguous : {false, true})
          for (const bool accumulate : {false, true}) {
            problem p{rows, depth, columns, k_is_contiguous};
            p.fill([&] { return normal(engine); });
            const std::vector<float> start(rows * columns, accumulate ? 0.7f : 0.f);
            std::vector<float> plain = start;
            p.add_plain(plain);
            CAPTURE(rows, depth, columns, k_is_contiguous, accumulate);
            for (const cpu::int8_step by : steps_here()) {
              std::vector<float> c = start;
              p.add_by_kernels(c, accumulate, 4, by);
              REQUIRE(same_bits(c, plain));
            }
          }
}

TEST_CASE("panels side by side have the bits of one after the other") {
  std::mt19937 engine(12);
  std::normal_distribution<float> normal;
  for (extent rows = 1; rows <= 6; ++rows) {
    problem p{rows, 321, 300};
    p.fill([&] { return normal(engine); });
    std::vector<float> one(rows * p.columns), four = one;
    p.add_by_kernels(one, false, 1);
    p.add_by_kernels(four, false, 4);
    REQUIRE(same_bits(one, four));
  }
}

TEST_CASE("the greatest integers of rows and weights add up exactly") {
  problem p{7, group, 40};
  p.fill([] { return 3.f; });
  std::vector<float> c(p.rows * p.columns), plain = c;
  p.add_plain(plain);
  p.add_by_kernels(c, false);
  CHECK(same_bits(c, plain));
  CHECK(std::abs(c[0] - 9 * group) < 0.1);
}

TEST_CASE("rows keep what is no number, and what is too small becomes 0") {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  problem p{4, 2 * group, 3};
  p.fill([] { return 1.f; });
  p.row(0, 5) = infinite;
  p.row(1, 40) = std::numeric_limits<float>::quiet_NaN();
  for (extent k = 0; k < p.depth; ++k) {
    p.row(2, k) = 1.4e-36f;
    p.row(3, k) = 1e-35f;
  }
  std::vector<float> c(p.rows * p.columns);
  p.add_by_kernels(c, false);
  CHECK(std::isnan(c[0]));
  CHECK(std::isnan(c[3]));
  CHECK(c[6] == 0);
  CHECK(std::abs(c[9] - 64e-35f) < 1e-36f);
}

}  // namespace
