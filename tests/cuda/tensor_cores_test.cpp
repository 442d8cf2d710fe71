// SPDX-License-Identifier: MIT
// Tensor cores and asynchronous copies on emulated blocks: numbers are rounded as a GPU rounds
// them, lanes have the parts that the PTX ISA gives them, and mistakes are named.
#include <fmoe/backend/cuda/emulated/block.hpp>
#include <fmoe/backend/cuda/kernels/narrow_number.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::cuda;

template <class Kernel>
void run(const Kernel& kernel, thread_order order = thread_order::shuffled) {
  block_runner runner(order);
  run_emulated(runner, {"broken", 64, 4096, 1}, kernel);
}

float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

TEST_CASE("numbers become tf32 and bf16 by rounding to nearest", "[cuda]") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(of_bits(to_tf32(1 + 0x1p-11f)) == 1 + 0x1p-10f);  // halves away from zero
  CHECK(of_bits(to_tf32(-1 - 0x1p-11f)) == -1 - 0x1p-10f);
  CHECK(of_bits(to_tf32(1 + 0x1p-11f - 0x1p-23f)) == 1);
  CHECK(of_bits(to_tf32(1 + 3 * 0x1p-11f)) == 1 + 0x1p-9f);
  CHECK(of_bits(to_tf32(infinity)) == infinity);
  CHECK(of_bits(to_tf32(std::numeric_limits<float>::max())) == infinity);
  CHECK(std::isnan(of_bits(to_tf32(std::numeric_limits<float>::quiet_NaN()))));
  const auto low = [](std::uint32_t pair) { return of_bits(pair << 16); };
  const auto high = [](std::uint32_t pair) { return of_bits(pair & 0xffff0000u); };
  CHECK(low(to_bf16_pair(1 + 0x1p-8f, 5)) == 1);  // halves to even
  CHECK(high(to_bf16_pair(5, 1 + 3 * 0x1p-8f)) == 1 + 0x1p-6f);
  CHECK(high(to_bf16_pair(5, -infinity)) == -infinity);
  CHECK(std::isnan(low(to_bf16_pair(std::numeric_limits<float>::quiet_NaN(), 5))));
  const tf32_pair x(0.1f);
  CHECK(std::abs(0.1f - of_bits(x.big) - of_bits(x.small)) <= 0x1p-22f * 0.1f);
  CHECK(tf32_pair(infinity).small == 0);
}

// The matrices of a product, and the lane and register of each element as the PTX ISA has them.
template <unsigned Depth>
struct small_matrices {
  float a[16][Depth], b[Depth][8], d[16][8];

  explicit small_matrices(unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> digits(-9, 9);
    for (auto& row : a)
      for (float& x : row) x = static_cast<float>(digits(random));
    for (auto& row : b)
      for (float& x : row) x = static_cast<float>(digits(random));
    for (auto& row : d)
      for (float& x : row) x = static_cast<float>(digits(random));
  }

  float result(unsigned i, unsigned j) const {
    float sum = d[i][j];
    for (unsigned k = 0; k < Depth; ++k) sum += a[i][k] * b[k][j];
    return sum;
  }
};

TEST_CASE("a warp multiplies small matrices, each lane a part", "[cuda]") {
  const small_matrices<8> tf32(1);
  const small_matrices<16> bf16(2);
  for (const auto order :
       {thread_order::ascending, thread_order::descending, thread_order::shuffled})
    run(
        [&](auto& b) {
          const unsigned lane = b.thread() % 32, group = lane / 4, in = lane % 4;
          {
            std::uint32_t x[4], y[2];
            for (unsigned r = 0; r < 4; ++r)
              x[r] = to_tf32(tf32.a[group + r % 2 * 8][in + r / 2 * 4]);
            for (unsigned r = 0; r < 2; ++r) y[r] = to_tf32(tf32.b[in + r * 4][group]);
            float d[4];
            for (unsigned r = 0; r < 4; ++r) d[r] = tf32.d[group + r / 2 * 8][2 * in + r % 2];
            b.mma_tf32(d, x, y);
            for (unsigned r = 0; r < 4; ++r)
              CHECK(d[r] == tf32.result(group + r / 2 * 8, 2 * in + r % 2));
          }
          std::uint32_t x[4], y[2];
          for (unsigned r = 0; r < 4; ++r) {
            const float* const row = bf16.a[group + r % 2 * 8] + 2 * in + r / 2 * 8;
            x[r] = to_bf16_pair(row[0], row[1]);
          }
          for (unsigned r = 0; r < 2; ++r)
            y[r] = to_bf16_pair(bf16.b[2 * in + r * 8][group], bf16.b[2 * in + r * 8 + 1][group]);
          float d[4];
          for (unsigned r = 0; r < 4; ++r) d[r] = bf16.d[group + r / 2 * 8][2 * in + r % 2];
          b.mma_bf16(d, x, y);
          for (unsigned r = 0; r < 4; ++r)
            CHECK(d[r] == bf16.result(group + r / 2 * 8, 2 * in + r % 2));
        },
        order);
}

TEST_CASE("a lane that misses a product of its warp is named", "[cuda]") {
  const std::uint32_t a[4] = {}, w[2] = {};
  CHECK_THROWS_WITH(run([&](auto& b) {
                      float d[4] = {};
                      if (b.thread() != 40) b.mma_tf32(d, a, w);
                    }),
                    test::containing("waits in mma_tf32") && test::containing("never come"));
  CHECK_THROWS_WITH(run([&](auto& b) {
                      float d[4] = {};
                      if (b.thread() % 32 < 16) b.mma_tf32(d, a, w);
                      else b.mma_bf16(d, a, w);
                    }),
                    test::containing("while others wait in mma_"));
}

}  // namespace
