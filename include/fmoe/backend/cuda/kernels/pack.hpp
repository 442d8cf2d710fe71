// SPDX-License-Identifier: MIT
// Neighbours in memory that one access reads or writes, 16 bytes at most on a GPU, and the numbers
// of 16 bits that are widened as they are read.
#pragma once

#include <bit>
#include <cstdint>

#include <fmoe/backend/cuda/kernels/number.hpp>
#include <fmoe/base/dtype.hpp>

namespace fmoe::cuda {

inline constexpr unsigned access_bytes = 16;  // of one access of a thread

// N numbers that lie where an access of all of them may begin.
template <class T, unsigned N>
struct alignas(sizeof(T) * N < access_bytes ? sizeof(T) * N : access_bytes) pack {
  T of[N];
};

// The numbers of one access.
template <class T>
inline constexpr unsigned numbers_each = access_bytes / sizeof(T);

template <class T, unsigned N>
FMOE_DEVICE pack<T, N> load_pack(const T* p) {
  return *reinterpret_cast<const pack<T, N>*>(p);
}
template <class T, unsigned N>
FMOE_DEVICE void store_pack(T* p, const pack<T, N>& x) {
  *reinterpret_cast<pack<T, N>*>(p) = x;
}

// N neighbours, or N times one number where the stride is 0. With N = 1 any stride will do.
template <unsigned N, class T>
FMOE_DEVICE pack<T, N> load_neighbours(const T* p, extent stride) {
  if (N > 1 && stride != 0) return load_pack<T, N>(p);
  pack<T, N> all;
  FMOE_UNROLL
  for (unsigned e = 0; e < N; ++e) all.of[e] = *p;
  return all;
}

// Do accesses of 16 bytes begin at p, and as far behind it as any multiple of `stride`?
template <class T>
FMOE_DEVICE bool is_aligned(const T* p, extent stride = 0) {
  return (std::bit_cast<std::uintptr_t>(p) | stride * sizeof(T)) % access_bytes == 0;
}

// The integer of a weight of 8 bits. Each `scale_group` weights along a sum share a scale.
struct q8_weight {
  std::int8_t value;
};
inline constexpr unsigned scale_group = 32;
template <class S>
inline constexpr bool is_scaled = false;
template <>
inline constexpr bool is_scaled<q8_weight> = true;

// Returns the number of T that a stored number stands for, exactly.
FMOE_DEVICE float widened(float x) { return x; }
FMOE_DEVICE double widened(double x) { return x; }
FMOE_DEVICE float widened(bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
FMOE_DEVICE float widened(q8_weight x) { return static_cast<float>(x.value); }  // without its scale
FMOE_DEVICE float widened(f16 x) {
#if defined(__CUDA_ARCH__)
  float made;
  asm("cvt.f32.f16 %0, %1;" : "=f"(made) : "h"(x.bits));
  return made;
#else
  return static_cast<float>(x);
#endif
}

}  // namespace fmoe::cuda
