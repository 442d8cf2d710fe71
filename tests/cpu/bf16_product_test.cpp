// SPDX-License-Identifier: MIT
// The oracle of products that round their rows to bf16 is a plain loop with the same rounding and
// order: two neighbours along k at a time, the second one first. Every level of instruction sets
// has the loop's bits. Tiles of AMX and matrices of ARM64 have another order, and loops of their
// own.
#include <fmoe/backend/cpu/kernels/bf16_product.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "../support/catch.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;
using sizes = std::initializer_list<extent>;

float rounded(float x) { return convert<float>(bf16(x)); }

// Rounds a sum toward 0, and makes its last bit 1 if it is not exact.
float sum_rounded_to_odd(float a, float b) {
  const double x = static_cast<double>(a), y = static_cast<double>(b), sum = x + y, of_b = sum - x,
               lost = (x - (sum - of_b)) + (y - of_b);  // exact: Knuth's two-sum
  float result = static_cast<float>(sum);
  const double over = static_cast<double>(result) - sum;
  if (over == 0 && lost == 0) return result;
  if (std::signbit(over != 0 ? over : -lost) == std::signbit(result))
    result = std::nextafter(result, 0.f);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(result) | 1u);
}

struct problem {
  extent rows, depth, columns;
  bool k_is_contiguous = false;
  extent block = 20;
  std::vector<float> x = std::vector<float>(rows * (depth + 3));
  std::vector<bf16> w = std::vector<bf16>(depth * columns);

  float& row(extent m, extent k) { return x[m * (depth + 3) + k]; }
  bf16& weight(extent k, extent n) { return w[k_is_contiguous ? n * depth + k : k * columns + n]; }

  problem& fill(auto value) {
    for (float& v : x) v = value();
    for (bf16& v : w) v = bf16(value());
    return *this;
  }

  // The sum of some neighbours along k, the second of two first.
  float sum_of(extent m, extent n, extent first, extent end) {
    float sum = 0;
    const auto add = [&](extent k) {
      if (k < depth) sum = std::fma(rounded(row(m, k)), convert<float>(weight(k, n)), sum);
      else sum += 0;
    };
    for (extent k = first; k < end; k += 2) {
      add(k + 1);
      add(k);
    }
    return sum;
  }
  // The same as a step of tiles of AMX adds: all first ones, all second ones, and both.
  float sum_of_step(extent m, extent n, extent first, extent end) {
    float sums[2] = {};
    for (extent k = first; k < end; ++k)
      sums[(k - first) % 2] =
          std::fma(rounded(row(m, k)), convert<float>(weight(k, n)), sums[(k - first) % 2]);
    return sums[0] + sums[1];
  }

  // The same as a step of ARM64's matrices adds to a sum: two pairs, one after the other.
  float sum_of_matrices(float sum, extent m, extent n, extent first, extent end) {
    const auto product = [&](extent k) {
      return k < end ? rounded(row(m, k)) * convert<float>(weight(k, n)) : 0.f;
    };
    for (extent k = first; k < first + 4; k += 2)
      sum = sum_rounded_to_odd(sum, sum_rounded_to_odd(product(k), product(k + 1)));
    return sum;
  }

  std::vector<float> plain(bool in_tiles = false) {
    std::vector<float> c;
    for (extent m = 0; m < rows; ++m)
      for (extent n = 0; n < columns; ++n) {
        float total = 0;
        for (extent first = 0; first < depth; first += block) {
          const extent end = std::min(depth, first + block);
          if (in_tiles && !cpu::is_neon<arch>) {
            for (extent k = first; k < end; k += 32)
              total += sum_of_step(m, n, k, std::min(end, k + 32));
            continue;
          }
          float sum = 0;
          if (in_tiles)
            for (extent k = first; k < end; k += 4) sum = sum_of_matrices(sum, m, n, k, end);
          else sum = sum_of(m, n, first, end);
          total = first == 0 ? sum : total + sum;
        }
        c.push_back(total);
      }
    return c;
  }

  // In one call, or in two, the first of which has one block. The second one adds to its sums, and
  // is told the terms of each block.
  std::vector<float> by_kernels(cpu::bf16_form form = cpu::bf16_form_here<arch>(),
                                bool in_two_calls = false) {
    std::vector<extent> k_offsets, n_offsets, counts;
    for (extent k = 0; k < depth; ++k) k_offsets.push_back(k_is_contiguous ? k : k * columns);
    for (extent n = 0; n < columns; ++n) n_offsets.push_back(k_is_contiguous ? n * depth : n);
    const auto& kernels = cpu::bf16_kernels<arch>(form);
    const auto floats = [&](extent k) { return cpu::bf16_depth<arch>(k, form); };
    const extent panels = divide_up(columns, cpu::panel_width<float, arch>),
                 panel_rows = floats(depth), stride = round_up(depth, 64);
    std::vector<std::byte> packed(panels * kernels.bytes(panel_rows));
    for (extent p = 0; p < panels; ++p)
      cpu::pack_bf16_panel<arch>(k_offsets, n_offsets, w.data(), p, packed.data(), form);
    std::vector<float> in(rows * stride, std::numeric_limits<float>::quiet_NaN()),
        c(rows * columns);
    cpu::round_rows_to_bf16<arch>(x.data(), depth + 3, rows, depth, in.data(), stride, form);
    cpu::gemm_args<float> args{.rows = rows,
                               .columns = columns,
                               .depth = panel_rows,
                               .a = in.data(),
                               .lda = stride,
                               .panels = {packed.data(), &kernels},
                               .panel_depth = panel_rows,
                               .c = c.data(),
                               .ldc = columns,
                               .accumulate = false,
                               .block = floats(block),
                               .next = nullptr};
    if (in_two_calls && depth > block) {
      args.depth = floats(block);
      cpu::gemm<float, arch>(args, [](auto...) {});
      for (extent k = block; k < depth; k += block)
        counts.push_back(floats(std::min(block, depth - k)));
      args.a += args.depth;
      args.panels.data += kernels.bytes(args.depth);
      args.depth = panel_rows - args.depth;
      args.accumulate = true;
      args.block = all;  // a panel that is widened at first has blocks of one length
      args.counts = counts.data();
    }
    cpu::gemm<float, arch>(args, [](auto...) {});
    return c;
  }
};

TEST_CASE("products that round their rows have the bits of a plain loop") {
  std::mt19937 engine(11);
  std::normal_distribution<float> normal;
  for (const extent rows : sizes{1, 2, 3, 5, 7, 13, 29, 130})
    for (const extent depth : sizes{1, 2, 19, 20, 21, 64, 257})
      for (const extent columns : sizes{1, 33, 160})
        for (const bool is_other : {false, true}) {
          problem p{rows, depth, columns, is_other, is_other ? extent{76} : extent{20}};
          p.fill([&] { return normal(engine); });
          CAPTURE(rows, depth, columns, p.block);
          const auto plain = p.plain();
          REQUIRE(same_bits(p.by_kernels(cpu::bf16_form::floats, is_other), plain));
          if (cpu::has_bf16_dots<arch>())
            REQUIRE(same_bits(p.by_kernels(cpu::bf16_form::pairs, is_other), plain));
          if (cpu::tile_kernels<cpu::tile_numbers::bf16_pairs, arch>() != nullptr)
            REQUIRE(same_bits(p.by_kernels(cpu::bf16_form::tiles, is_other), p.plain(true)));
        }
}

TEST_CASE("rows are rounded to the nearest, ties to even, and keep what is no number") {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  problem p{7, 2, 1};
  p.weight(0, 0) = bf16(1.f);
  const float ties[] = {1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1p-8f + 0x1p-20f, -3e38f, infinite};
  for (extent m = 0; m < 5; ++m) p.row(m, 0) = ties[m];
  p.row(5, 0) = std::numeric_limits<float>::quiet_NaN();
  p.row(6, 0) = 0x1.fffp-127f;  // no bf16 above 0 is as small and normal
  const auto c = p.by_kernels();
  CHECK(c[0] == 1);
  CHECK(c[1] == 1 + 0x1p-6f);
  CHECK(c[2] == 1 + 0x1p-7f);
  CHECK(c[3] == rounded(-3e38f));
  CHECK(c[4] == infinite);
  CHECK(std::isnan(c[5]));
  CHECK(c[6] == 0);
}

TEST_CASE("subnormal weights count as 0") {
  problem p{1, 1, 1};
  p.row(0, 0) = 1;
  p.weight(0, 0) = bf16(0x1p-127f);
  CHECK(p.by_kernels(cpu::bf16_form::floats)[0] == 0);
  CHECK(p.by_kernels()[0] == 0);
}

}  // namespace
