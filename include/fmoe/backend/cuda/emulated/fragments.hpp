// SPDX-License-Identifier: MIT
// The products of small matrices that a warp of a GPU computes together, as the CPU computes them.
// Each lane has a part of each matrix: that of mma.m16n8k8 and mma.m16n8k16 in the PTX ISA. Products
// are exact, and sums are rounded to float, one term after the other; a GPU may add up in another
// order, and cut off instead of rounding.
#pragma once

#include <bit>
#include <cstdint>

namespace fmoe::cuda {

// What one lane has of d (+)= a b.
struct fragments {
  float* d;
  const std::uint32_t *a, *b;
};

// d [16, 8] += a [16, Depth] b [Depth, 8]; a_at(i, k) and b_at(k, j) are floats.
template <unsigned Depth, class A, class B>
void add_small_product(const fragments* const* of, const A& a_at, const B& b_at) {
  float a[16][Depth], b[Depth][8];
  for (unsigned k = 0; k < Depth; ++k) {
    for (unsigned i = 0; i < 16; ++i) a[i][k] = a_at(i, k);
    for (unsigned j = 0; j < 8; ++j) b[k][j] = b_at(k, j);
  }
  for (unsigned i = 0; i < 16; ++i)
    for (unsigned j = 0; j < 8; ++j) {
      float& d = of[i % 8 * 4 + j / 2]->d[i / 8 * 2 + j % 2];
      for (unsigned k = 0; k < Depth; ++k) d += a[i][k] * b[k][j];
    }
}

// Element (i, k) of a lies in lane 4 (i % 8) + k % 4, and element (k, j) of b in lane 4 j + k % 4.
inline void add_tf32_product(const fragments* const* of) {
  add_small_product<8>(
      of,
      [&](unsigned i, unsigned k) {
        return std::bit_cast<float>(of[i % 8 * 4 + k % 4]->a[i / 8 + k / 4 * 2]);
      },
      [&](unsigned k, unsigned j) { return std::bit_cast<float>(of[j * 4 + k % 4]->b[k / 4]); });
}

// Two neighbours along k lie in one register, the first one in its lower half.
inline void add_bf16_product(const fragments* const* of) {
  const auto half = [](std::uint32_t pair, unsigned k) {
    return std::bit_cast<float>(k % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  };
  add_small_product<16>(
      of,
      [&](unsigned i, unsigned k) {
        return half(of[i % 8 * 4 + k % 8 / 2]->a[i / 8 + k / 8 * 2], k);
      },
      [&](unsigned k, unsigned j) { return half(of[j * 4 + k % 8 / 2]->b[k / 8], k); });
}

}  // namespace fmoe::cuda
