// SPDX-License-Identifier: MIT
// Floats as tensor cores take them: rounded to tf32 or bf16, in the bits of a register. A GPU and
// the CPU round alike.
#pragma once

#include <limits>

#include <fmoe/backend/cuda/kernels/number.hpp>
#include <fmoe/base/dtype.hpp>

namespace fmoe::cuda {

// Returns the bits of what tensor cores take for x rounded to 11 bits, to nearest, and halves away
// from zero: they leave out the last 13 bits.
FMOE_DEVICE std::uint32_t nearly_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::fabs(x) < std::numeric_limits<float>::infinity() ? bits + 0x1000 : bits;
}
// The same without these bits.
FMOE_DEVICE std::uint32_t to_tf32(float x) { return nearly_tf32(x) & ~std::uint32_t{0x1fff}; }

// Returns two numbers rounded to 8 bits, to nearest, and halves to even; the first one in the lower
// half.
FMOE_DEVICE std::uint32_t to_bf16_pair(float first, float second) {
#if defined(__CUDA_ARCH__)
  std::uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  return bits;
#else
  const auto half = [](float x) -> std::uint32_t {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if (x != x) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  };
  return half(first) | half(second) << 16;
#endif
}

FMOE_DEVICE std::uint32_t to_bf16_pair(bf16 first, bf16 second) {
  return first.bits | std::uint32_t{second.bits} << 16;
}

FMOE_DEVICE bf16 to_bf16(float x) {
  return std::bit_cast<bf16>(static_cast<std::uint16_t>(to_bf16_pair(x, 0)));
}

// x as a sum of two tf32 numbers, the second of which has bits behind, and little else. What is
// left of an infinity is 0.
struct tf32_pair {
  std::uint32_t big, small;

  tf32_pair() = default;
  FMOE_DEVICE explicit tf32_pair(float x) : big(to_tf32(x)) {
    const bool is_finite = std::fabs(x) < std::numeric_limits<float>::infinity();
    const float rest = sum_of(x, -std::bit_cast<float>(big));
    small = is_finite ? std::bit_cast<std::uint32_t>(rest) + 0x1000 : 0;
  }
};

}  // namespace fmoe::cuda
