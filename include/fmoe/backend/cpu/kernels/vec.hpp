// SPDX-License-Identifier: MIT
// The types of the vectors in which every kernel is written, and how they are loaded and stored.
// Everything is a template on the architecture, so that translation units compiled for different
// architectures share no symbol.
#pragma once

#include <cstdint>
#include <type_traits>

#include <xsimd/xsimd.hpp>

#include <fmoe/base/compiler.hpp>
#include <fmoe/base/dtype.hpp>

#if defined(__FAST_MATH__) && !defined(FMOE_ALLOW_FAST_MATH)
// -ffast-math assumes that there are no NaN and infinity, which top-k, softmax and ReLU order and
// keep. It also reorders sums, so that the bits of a row would depend on the rows beside it.
#error \
    "fmoe: results are undefined under -ffast-math: compile without it, or define FMOE_ALLOW_FAST_MATH"
#endif

namespace fmoe::cpu {

// Kernels are templates on this type. The floors above them, which do not know xsimd, use the name
// `native`. On ARM64 it is NEON, also where SVE is compiled for: a core does as many multiply-adds
// with either, and only NEON's vectors have a length that a compiler knows.
#if defined(__aarch64__)
using native_arch = xsimd::neon64;
#else
using native_arch = xsimd::default_arch;
#endif

template <class T, class Arch>
using vec = xsimd::batch<T, Arch>;

template <class T, class Arch>
using mask = typename vec<T, Arch>::batch_bool_type;

template <class T, class Arch>
inline constexpr extent lanes = vec<T, Arch>::size;

template <class Arch>
inline constexpr bool is_avx512 = std::is_base_of_v<xsimd::avx512f, Arch>;

template <class Arch>
inline constexpr bool is_avx2 = std::is_base_of_v<xsimd::avx2, Arch>;

template <class Arch>
inline constexpr bool is_sse =
    std::is_base_of_v<xsimd::sse2, Arch> && !std::is_base_of_v<xsimd::avx, Arch>;

template <class Arch>
inline constexpr bool is_neon = std::is_base_of_v<xsimd::neon64, Arch>;

// Kernels that add up a row take so many vectors as one. On ARM64 two have the lanes of one of
// AVX2, so that sums have the same order, and the same bits, as on x86-64-v3.
template <class Arch>
inline constexpr extent vectors_of_sum = is_neon<Arch> ? 2 : 1;

template <class T, class Arch>
vec<T, Arch> load(const T* p) {
  return vec<T, Arch>::load_unaligned(p);
}

template <class T, class Arch>
void store(T* p, const vec<T, Arch>& v) {
  v.store_unaligned(p);
}

// Two neighbours along k, whose products an integer dot product adds to a sum of 32 bits. `Fused`
// says that one instruction does so, that of VNNI, and not two.
template <bool Fused>
struct int16_pair {
  static constexpr bool is_fused = Fused;
  std::int16_t first, second;
};

// Two neighbours along k in bf16, whose products AVX512_BF16 adds to a float (bf16_product.hpp).
struct bf16_pair {
  bf16 first, second;
};

template <class S>
inline constexpr bool is_int16_pair = false;
template <bool Fused>
inline constexpr bool is_int16_pair<int16_pair<Fused>> = true;

// Four neighbours along k in a column, for products of integers of 8 bits, ARM64's and AMX's. The
// row that they meet has integers of 16 bits, in halves: the upper halves of all, and then the
// lower ones.
struct int8_quad {
  std::int8_t of_k[4];
};

template <class S>
inline constexpr bool is_integers = is_int16_pair<S> || std::is_same_v<S, int8_quad>;

// What the tiles of AMX and the matrices of ARM64 hold: pairs of bf16 numbers or quads of integers
// of 8 bits, neighbours along k.
enum class tile_numbers : std::uint8_t { bf16_pairs, int8_quads };

// True for panels whose rows are several neighbours along k.
template <class S>
inline constexpr bool is_in_groups = is_integers<S> || std::is_same_v<S, bf16_pair>;

}  // namespace fmoe::cpu
