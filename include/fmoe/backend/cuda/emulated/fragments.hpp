// SPDX-License-Identifier: MIT
// The products of small matrices that a warp of a GPU computes together, as the CPU computes them.
// Each lane has a part of each matrix: that of mma.m16n8k8 and mma.m16n8k16 in the PTX ISA.
// Products are exact. Sums are rounded to float, one term after the other, or else cut off as GPUs
// may do it: each term loses what is below the last digit of the greatest one, or nearly that
// digit.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include <fmoe/backend/cuda/device.hpp>

namespace fmoe::cuda {

// What one lane has of d (+)= a b.
struct fragments {
  float* d;
  const std::uint32_t *a, *b;
};

// Returns x without what is below its last digit, for a greatest number with this exponent.
inline double cut_off(double x, int exponent) {
  return std::ldexp(std::trunc(std::ldexp(x, 23 - exponent)), exponent - 23);
}

// Returns x without nearly all of that digit, and 0 if there is no more.
inline double lessened(double x, int exponent) {
  const double lost = std::ldexp(1 - 0x1p-6, exponent - 23);
  return std::abs(x) <= lost ? 0 : x - std::copysign(lost, x);
}

template <unsigned Depth>
float cut_off_sum(float d, const float (&a)[Depth], const float (&b)[Depth][8], unsigned j,
                  bool is_worst) {
  double terms[Depth + 1], greatest = 0, sum = 0;
  for (unsigned k = 0; k < Depth; ++k) terms[k] = static_cast<double>(a[k]) * double{b[k][j]};
  terms[Depth] = d;
  for (const double t : terms) {
    if (!std::isfinite(t)) return static_cast<float>(t) + d;
    greatest = std::max(greatest, std::abs(t));
  }
  if (greatest == 0) return 0;
  const int digits = std::ilogb(greatest);
  for (const double t : terms) sum += is_worst ? lessened(t, digits) : cut_off(t, digits);
  return sum == 0 ? 0 : static_cast<float>(cut_off(sum, std::ilogb(sum)));
}

// d [16, 8] += a [16, Depth] b [Depth, 8]; a_at(i, k) and b_at(k, j) are floats.
template <unsigned Depth, class A, class B>
void add_small_product(const fragments* const* of, tensor_sums sums, const A& a_at, const B& b_at) {
  float a[16][Depth], b[Depth][8];
  for (unsigned k = 0; k < Depth; ++k) {
    for (unsigned i = 0; i < 16; ++i) a[i][k] = a_at(i, k);
    for (unsigned j = 0; j < 8; ++j) b[k][j] = b_at(k, j);
  }
  for (unsigned i = 0; i < 16; ++i)
    for (unsigned j = 0; j < 8; ++j) {
      float& d = of[i % 8 * 4 + j / 2]->d[i / 8 * 2 + j % 2];
      if (sums != tensor_sums::rounded)
        d = cut_off_sum<Depth>(d, a[i], b, j, sums == tensor_sums::worst);
      else
        for (unsigned k = 0; k < Depth; ++k) d += a[i][k] * b[k][j];
    }
}

// Element (i, k) of a lies in lane 4 (i % 8) + k % 4, and element (k, j) of b in lane 4 j + k % 4.
// The last 13 bits are left out.
inline void add_tf32_product(const fragments* const* of, tensor_sums sums) {
  const auto number = [](std::uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); };
  add_small_product<8>(
      of, sums,
      [&](unsigned i, unsigned k) { return number(of[i % 8 * 4 + k % 4]->a[i / 8 + k / 4 * 2]); },
      [&](unsigned k, unsigned j) { return number(of[j * 4 + k % 4]->b[k / 4]); });
}

// Two neighbours along k lie in one register, the first one in its lower half.
inline void add_bf16_product(const fragments* const* of, tensor_sums sums) {
  const auto half = [](std::uint32_t pair, unsigned k) {
    return std::bit_cast<float>(k % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  };
  add_small_product<16>(
      of, sums,
      [&](unsigned i, unsigned k) {
        return half(of[i % 8 * 4 + k % 8 / 2]->a[i / 8 + k / 8 * 2], k);
      },
      [&](unsigned k, unsigned j) { return half(of[j * 4 + k % 8 / 2]->b[k / 8], k); });
}

}  // namespace fmoe::cuda
