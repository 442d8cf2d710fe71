// SPDX-License-Identifier: MIT
// The precision of the x87 unit. On Windows it is 64 bits on the first thread of a program that
// MinGW-w64 (12.2, of Debian 12) has made and 53 bits on threads that Windows makes, and its
// exp, pow and erfc compute with that unit: of 100,000 numbers exp has other bits for 17,198.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include <fmoe/base/compiler.hpp>

namespace fmoe::test {

// What f returns with each of the two precisions; where there is no such unit, twice the same.
template <class F>
auto at_both_precisions(const F& f) {
#if FMOE_X86_64 && FMOE_ASSEMBLY
  constexpr std::uint16_t bits_64 = 0x37f, bits_53 = 0x27f;
  std::uint16_t before;
  asm volatile("fnstcw %0" : "=m"(before));
  asm volatile("fldcw %0" : : "m"(bits_64));
  auto first = f();
  asm volatile("fldcw %0" : : "m"(bits_53));
  auto second = f();
  asm volatile("fldcw %0" : : "m"(before));
  return std::array{std::move(first), std::move(second)};
#else
  return std::array{f(), f()};
#endif
}

}  // namespace fmoe::test
