// SPDX-License-Identifier: MIT
// The vectors in which every kernel is written. Only the headers of vectors name xsimd, whose
// releases 8 to 14 differ in the functions that are wrapped in them: vec.hpp, this one, and
// simd_x86.hpp and simd_neon.hpp, which alone, with panel_int8.hpp, have intrinsics. Tiles of AMX
// are in amx.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <fmoe/backend/cpu/kernels/simd_neon.hpp>
#include <fmoe/backend/cpu/kernels/simd_x86.hpp>

#if !FMOE_X86_64 && !defined(__aarch64__)
#error "fmoe: there are kernels for x86-64 and ARM64, and for no other machine"
#endif

namespace fmoe::cpu {

using xsimd::abs;
using xsimd::isnan;  // in xsimd 8, x != x is false for NaN on AVX
using xsimd::select;

// True if one or two instructions turn numbers stored as S into a vector of T.
template <class T, class S, class Arch>
inline constexpr bool widens =
    std::is_same_v<S, T> ||
    (std::is_same_v<T, float> &&
     (std::is_same_v<S, bf16> || (std::is_same_v<S, f16> && has_f16<Arch>)));

// Loads the first n lanes of such numbers and sets the others to 0; reads no byte beyond p + n.
template <class T, class Arch, class S>
vec<T, Arch> load_part_as(const S* p, extent n) {
  if constexpr (std::is_same_v<S, T>) return load_part<T, Arch>(p, n);
  if (n == lanes<T, Arch>) return load_as<T, Arch>(p);
  S buffer[lanes<T, Arch>] = {};
  std::copy_n(p, n, buffer);
  return load_as<T, Arch>(buffer);
}

// Loads bf16 numbers of two vectors that alternate: this takes half the instructions of two
// separate vectors.
template <class T, class Arch>
void load_pairs(const bf16* p, vec<T, Arch>& even, vec<T, Arch>& odd) {
  using real = typename vec<T, Arch>::register_type;
  using words = vector_of<std::uint32_t, sizeof(real) / 4>;
  words both;
  std::memcpy(&both, p, sizeof both);
  even = vec<T, Arch>(__builtin_bit_cast(real, both << 16));
  odd = vec<T, Arch>(__builtin_bit_cast(real, both & 0xffff0000u));
}

// Flips the sign bit: -(+0) is -0, where xsimd's operator- returns +0 on AVX-512.
template <class T, class Arch>
vec<T, Arch> negate(const vec<T, Arch>& x) {
  return x ^ vec<T, Arch>(T(-0.0));
}

// Returns the greater, or NaN if either is NaN. (xsimd's max drops a NaN on one side, and releases
// differ on which.)
template <class T, class Arch>
vec<T, Arch> larger(const vec<T, Arch>& a, const vec<T, Arch>& b) {
  return select((b <= a) | isnan(a), a, b);
}

// Returns x 2^n, rounded once, for integral n; except on AVX-512 only for |n| < 256 (double: 2048)
// and x near 1. n + 1.5 2^23 holds n in its lowest bits, and a shift moves them into the exponent.
// It multiplies by two factors, because 2^n itself may not be representable.
template <class T, class Arch>
vec<T, Arch> scale_by_power_of_two(const vec<T, Arch>& x, const vec<T, Arch>& n) {
  using v = vec<T, Arch>;
  if constexpr (is_avx512<Arch> && sizeof(T) == 4) {
    return _mm512_maskz_scalef_ps(0xffff, x, n);
  } else if constexpr (is_avx512<Arch>) {
    return _mm512_maskz_scalef_pd(0xff, x, n);
  } else {
    constexpr bool single = sizeof(T) == 4;
    using integers = xsimd::batch<std::conditional_t<single, std::int32_t, std::int64_t>, Arch>;
    using bits = typename integers::register_type;
    using real = typename v::register_type;
    const v rounder(T(single ? 0x1.8p23 : 0x1.8p52)), half = fmadd(n, v(T(0.5)), rounder) - rounder;
    const auto to_integers = [](real r) { return integers(__builtin_bit_cast(bits, r)); };
    const auto power = [&](const v& m) {
      const bits b = (to_integers(m + rounder) << (single ? 23 : 52)) + to_integers(v(T(1)));
      return v(__builtin_bit_cast(real, b));
    };
    return x * power(half) * power(n - half);
  }
}

// A number is fraction 2^exponent; the fraction is at least 1 and less than 2.
template <class T, class Arch>
struct binary_parts {
  vec<T, Arch> fraction, exponent;
};

// Takes apart positive numbers that are neither subnormal nor infinite. Or'ed into the bits of 2^23
// (double: 2^52), an integer becomes a number.
template <class T, class Arch>
binary_parts<T, Arch> parts_of(const vec<T, Arch>& x) {
  using v = vec<T, Arch>;
  constexpr bool single = sizeof(T) == 4;
  using integer = std::conditional_t<single, std::int32_t, std::int64_t>;
  using integers = xsimd::batch<integer, Arch>;
  constexpr int digits = single ? 23 : 52;
  const auto bits = [](const v& y) {
    return integers(__builtin_bit_cast(typename integers::register_type,
                                       static_cast<typename v::register_type>(y)));
  };
  const auto real = [](const integers& i) {
    return v(__builtin_bit_cast(typename v::register_type,
                                static_cast<typename integers::register_type>(i)));
  };
  // xsimd's shift on AVX-512 starts from a vector that g++ 12 says may be uninitialized.
  const auto shifted = [](const integers& i) -> integers {
#if FMOE_X86_64
    if constexpr (is_avx512<Arch> && single) return _mm512_maskz_srli_epi32(0xffff, i, digits);
    else if constexpr (is_avx512<Arch>) return _mm512_maskz_srli_epi64(0xff, i, digits);
    else
#endif
      return i >> digits;
  };
  constexpr T rounder = single ? 0x1p23 : 0x1p52, bias = single ? 127 : 1023;
  const integers fraction = bits(x) & integers((integer{1} << digits) - 1);
  return {real(fraction | bits(v(T(1)))),
          real(shifted(bits(x)) | bits(v(rounder))) - v(rounder + bias)};
}

// Returns the sum of all lanes, adding halves to halves: the order is the same in every release.
template <class T, class Arch>
T sum(const vec<T, Arch>& v) {
#if FMOE_X86_64
  constexpr bool has_avx = is_avx512<Arch> || std::is_base_of_v<xsimd::avx, Arch>;
  if constexpr (sizeof(T) == 4 && has_avx) {
    __m256 eight;
    if constexpr (is_avx512<Arch>) {
      const __m512d pairs = _mm512_castps_pd(v);
      const __m256d lower = _mm512_maskz_extractf64x4_pd(0xf, pairs, 0),
                    upper = _mm512_maskz_extractf64x4_pd(0xf, pairs, 1);
      eight = _mm256_add_ps(_mm256_castpd_ps(lower), _mm256_castpd_ps(upper));
    } else {
      eight = v;
    }
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
#endif
  T lane[lanes<T, Arch>];
  store<T, Arch>(lane, v);
  for (extent half = lanes<T, Arch> / 2; half > 0; half /= 2)
    for (extent i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

// The same for the vectors that a kernel takes as one.
template <class T, class Arch>
T sum(const std::array<vec<T, Arch>, vectors_of_sum<Arch>>& v) {
  if constexpr (vectors_of_sum<Arch> == 1) return sum<T, Arch>(v[0]);
  else return sum<T, Arch>(v[0] + v[1]);
}

template <class T, class Arch>
T greatest(const vec<T, Arch>& v) {
  T lane[lanes<T, Arch>];
  store<T, Arch>(lane, v);
  for (extent i = 1; i < lanes<T, Arch>; ++i)
    if (!(lane[i] <= lane[0]) && lane[0] == lane[0]) lane[0] = lane[i];
  return lane[0];
}

}  // namespace fmoe::cpu
