// SPDX-License-Identifier: MIT
// The vectors in which every kernel is written. Only this header names xsimd, whose releases 8 to
// 14 differ in the functions that are wrapped here, and only this header and panel_int8.hpp have
// intrinsics. Everything is a template on the architecture, so that translation units compiled for
// different architectures share no symbol.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <xsimd/xsimd.hpp>

#include <fmoe/base/compiler.hpp>
#include <fmoe/base/dtype.hpp>

#if FMOE_X86_64
#include <immintrin.h>
#endif

#if defined(__FAST_MATH__) && !defined(FMOE_ALLOW_FAST_MATH)
// -ffast-math assumes that there are no NaN and infinity, which top-k, softmax and ReLU order and
// keep. It also reorders sums, so that the bits of a row would depend on the rows beside it.
#error \
    "fmoe: results are undefined under -ffast-math: compile without it, or define FMOE_ALLOW_FAST_MATH"
#endif

namespace fmoe::cpu {

// Kernels are templates on this type. The floors above them, which do not know xsimd, use the name
// `native`.
using native_arch = xsimd::default_arch;

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

#if defined(__F16C__) || (FMOE_MSVC && defined(__AVX2__))
inline constexpr bool has_f16c = true;
#else
inline constexpr bool has_f16c = false;
#endif

using xsimd::abs;
using xsimd::isnan;  // in xsimd 8, x != x is false for NaN on AVX
using xsimd::select;

template <class T, class Arch>
vec<T, Arch> load(const T* p) {
  return vec<T, Arch>::load_unaligned(p);
}

template <class T, class Arch>
void store(T* p, const vec<T, Arch>& v) {
  v.store_unaligned(p);
}

// Stores a whole line of the cache without reading it first, and not to stay there. Who does so
// calls end_lines before another thread reads.
template <class T, class Arch>
void store_line(T* line, const vec<T, Arch>& v) {
  if constexpr (is_avx512<Arch> && sizeof(T) == 4) _mm512_stream_ps(line, v);
  else if constexpr (is_avx512<Arch>) _mm512_stream_pd(line, v);
  else store<T, Arch>(line, v);
}
template <class Arch>
void end_lines() {
  if constexpr (is_avx512<Arch>) _mm_sfence();
}

// For AVX2: all bits of the first n lanes, n <= 8 floats or 4 doubles.
template <class T>
__m256i first_lanes(extent n) {
  alignas(32) static constexpr std::int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bits + 8 - n * (sizeof(T) / 4)));
}

// Loads the first n lanes from memory and fills the others with `fill`; reads no byte beyond p + n.
// n <= lanes.
template <class T, class Arch>
vec<T, Arch> load_part(const T* p, extent n, T fill = 0) {
  constexpr extent width = lanes<T, Arch>;
  if (n == width) return load<T, Arch>(p);
  if constexpr (is_avx512<Arch> && sizeof(T) == 4) {
    return _mm512_mask_loadu_ps(vec<T, Arch>(fill), static_cast<std::uint16_t>((1u << n) - 1), p);
  } else if constexpr (is_avx512<Arch>) {
    return _mm512_mask_loadu_pd(vec<T, Arch>(fill), static_cast<std::uint8_t>((1u << n) - 1), p);
  } else if constexpr (is_avx2<Arch> && sizeof(T) == 4) {
    const __m256i bits = first_lanes<T>(n);
    return _mm256_blendv_ps(vec<T, Arch>(fill), _mm256_maskload_ps(p, bits),
                            _mm256_castsi256_ps(bits));
  } else if constexpr (is_avx2<Arch>) {
    const __m256i bits = first_lanes<T>(n);
    return _mm256_blendv_pd(vec<T, Arch>(fill), _mm256_maskload_pd(p, bits),
                            _mm256_castsi256_pd(bits));
  } else {
    T buffer[width];
    for (extent i = 0; i < width; ++i) buffer[i] = i < n ? p[i] : fill;
    return load<T, Arch>(buffer);
  }
}

// Loads integers of 32 bits, whose bits p holds, as numbers; each is rounded once.
template <class Arch>
vec<float, Arch> load_integers(const float* p) {
  if constexpr (is_avx512<Arch>) return _mm512_maskz_cvtepi32_ps(0xffff, _mm512_loadu_si512(p));
  else if constexpr (is_avx2<Arch>)
    return _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  else return _mm_cvtepi32_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Stores integral numbers below 2^15 as integers of 16 bits, in half as many bytes.
template <class Arch>
void store_integers(float* p, const vec<float, Arch>& v) {
  auto* const to = reinterpret_cast<__m128i*>(p);
  if constexpr (is_avx512<Arch>) {
    const __m512i wide = _mm512_maskz_cvtps_epi32(0xffff, v);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtepi32_epi16(0xffff, wide));
  } else if constexpr (is_avx2<Arch>) {
    const __m256i wide = _mm256_cvtps_epi32(v);
    _mm_storeu_si128(
        to, _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)));
  } else {
    const __m128i wide = _mm_cvtps_epi32(v);
    _mm_storel_epi64(to, _mm_packs_epi32(wide, wide));
  }
}

// True if the CPU says that it has a feature: a bit of one of the four words of a leaf of `cpuid`.
// In a virtual machine the question takes microseconds.
template <class Arch>
bool has_cpuid(unsigned leaf, unsigned part, extent word, unsigned bit) {
  unsigned words[4] = {};
  return ask_cpuid(leaf, part, words) && (words[word] >> bit & 1u) != 0;
}

// Writes back what caches hold of these bytes and drops it, so that the next read is from memory.
// Flushes that do not wait for each other are ten times as fast; all CPUs since 2017 have them.
template <class Arch>
void flush(std::byte* p, extent bytes) {
  [[maybe_unused]] const bool is_quick = has_cpuid<Arch>(7, 0, 1, 23);
  for (extent i = 0; i < bytes; i += 64)
#if FMOE_ASSEMBLY
    if (is_quick) asm volatile("clflushopt %0" : "+m"(p[i]));
    else _mm_clflush(p + i);
#else
    _mm_clflush(p + i);
#endif
  _mm_mfence();
}

// Two neighbours along k, whose products an integer dot product adds to a sum of 32 bits. `Fused`
// says that one instruction does so, that of VNNI, and not two.
template <bool Fused>
struct int16_pair {
  static constexpr bool is_fused = Fused;
  std::int16_t first, second;
};

template <class S>
inline constexpr bool is_int16_pair = false;
template <bool Fused>
inline constexpr bool is_int16_pair<int16_pair<Fused>> = true;

// True if one or two instructions turn numbers stored as S into a vector of T.
template <class T, class S, class Arch>
inline constexpr bool widens =
    std::is_same_v<S, T> ||
    (std::is_same_v<T, float> &&
     (std::is_same_v<S, bf16> || (std::is_same_v<S, f16> && (is_avx512<Arch> || has_f16c))));

// Loads a vector of numbers stored as S.
template <class T, class Arch, class S>
vec<T, Arch> load_as(const S* p) {
  if constexpr (std::is_same_v<S, T>) {
    return load<T, Arch>(p);
  } else if constexpr (is_int16_pair<S>) {
    return load<T, Arch>(reinterpret_cast<const T*>(p));  // the bits of the pairs
#if FMOE_X86_64
  } else if constexpr (is_avx512<Arch> && std::is_same_v<S, std::int8_t>) {
    const auto wide =
        _mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_maskz_cvtepi32_ps(0xffff, wide);
  } else if constexpr (is_avx2<Arch> && std::is_same_v<S, std::int8_t>) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  } else if constexpr (is_avx512<Arch> && std::is_same_v<S, bf16>) {
    const auto wide = _mm512_maskz_cvtepu16_epi32(
        0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, wide, 16));
  } else if constexpr (is_avx512<Arch>) {
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  } else if constexpr (is_avx2<Arch> && std::is_same_v<S, bf16>) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
#if defined(__F16C__) || (FMOE_MSVC && defined(__AVX2__))
  } else if constexpr (is_avx2<Arch>) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#endif
  } else if constexpr (is_sse<Arch> && std::is_same_v<S, bf16>) {
    return _mm_castsi128_ps(_mm_unpacklo_epi16(
        _mm_setzero_si128(), _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#endif
  } else {
    T buffer[lanes<T, Arch>];
    for (extent i = 0; i < lanes<T, Arch>; ++i) buffer[i] = convert<T>(p[i]);
    return load<T, Arch>(buffer);
  }
}

// True if the CPU has the fused dot product for vectors of Arch. No x86-64 level contains it.
template <class Arch>
bool has_fused_dots() {
  static const bool has =
      is_avx512<Arch> ? has_cpuid<Arch>(7, 0, 2, 11) : is_avx2<Arch> && has_cpuid<Arch>(7, 1, 0, 4);
  return (FMOE_ASSEMBLY || FMOE_MSVC) && has;
}

// Returns sum + x[2i] w[2i] + x[2i + 1] w[2i + 1] in integers of 32 bits, whose bits the vectors
// hold; a sum wraps around. The fused instruction is named in assembly, because a function of
// another target could not be inlined.
template <bool Fused, class Arch>
vec<float, Arch> add_dots(const vec<float, Arch>& x, const vec<float, Arch>& w,
                          const vec<float, Arch>& sum) {
  using real = typename vec<float, Arch>::register_type;
  const real a = x, b = w;
  if constexpr (Fused) {
#if FMOE_ASSEMBLY
    real r = sum;
    if constexpr (is_avx512<Arch>)
      asm("vpdpwssd {%2, %1, %0|%0, %1, %2}" : "+v"(r) : "v"(b), "v"(a));
    else asm("%{vex%} vpdpwssd {%2, %1, %0|%0, %1, %2}" : "+x"(r) : "x"(b), "x"(a));
    return r;
#elif FMOE_MSVC
    if constexpr (is_avx512<Arch>)
      return _mm512_castsi512_ps(_mm512_dpwssd_epi32(
          _mm512_castps_si512(sum), _mm512_castps_si512(a), _mm512_castps_si512(b)));
    else
      return _mm256_castsi256_ps(_mm256_dpwssd_avx_epi32(
          _mm256_castps_si256(sum), _mm256_castps_si256(a), _mm256_castps_si256(b)));
#else
    return add_dots<false, Arch>(x, w, sum);
#endif
  } else if constexpr (is_avx512<Arch>) {
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(sum),
                         _mm512_madd_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b))));
  } else if constexpr (is_avx2<Arch>) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(sum),
                         _mm256_madd_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b))));
  } else {
    return _mm_castsi128_ps(_mm_add_epi32(
        _mm_castps_si128(sum), _mm_madd_epi16(_mm_castps_si128(a), _mm_castps_si128(b))));
  }
}

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

// Writes the first n lanes, and no byte beyond p + n. n <= lanes.
template <class T, class Arch>
void store_part(T* p, extent n, const vec<T, Arch>& v) {
  constexpr extent width = lanes<T, Arch>;
  if (n == width) return store<T, Arch>(p, v);
  if constexpr (is_avx512<Arch> && sizeof(T) == 4) {
    _mm512_mask_storeu_ps(p, static_cast<std::uint16_t>((1u << n) - 1), v);
  } else if constexpr (is_avx512<Arch>) {
    _mm512_mask_storeu_pd(p, static_cast<std::uint8_t>((1u << n) - 1), v);
  } else if constexpr (is_avx2<Arch> && sizeof(T) == 4) {
    _mm256_maskstore_ps(p, first_lanes<T>(n), v);
  } else if constexpr (is_avx2<Arch>) {
    _mm256_maskstore_pd(p, first_lanes<T>(n), v);
  } else {
    T buffer[width];
    store<T, Arch>(buffer, v);
    for (extent i = 0; i < n; ++i) p[i] = buffer[i];
  }
}

// Returns a b + c: rounded once on AVX2 and AVX-512, twice on SSE. (On AVX-512 xsimd 8 and clang
// would make two operations of it.)
template <class T, class Arch>
vec<T, Arch> fmadd(const vec<T, Arch>& a, const vec<T, Arch>& b, const vec<T, Arch>& c) {
  if constexpr (is_avx512<Arch> && sizeof(T) == 4) return _mm512_fmadd_ps(a, b, c);
  else if constexpr (is_avx512<Arch>) return _mm512_fmadd_pd(a, b, c);
  else return xsimd::fma(a, b, c);
}

// The same for the inner loop of products. Its operands are in registers: g++ 12, which takes an
// operand from memory to cost nothing, would keep weights on the stack.
template <class T, class Arch>
FMOE_ALWAYS_INLINE vec<T, Arch> fmadd_registers(const vec<T, Arch>& a, const vec<T, Arch>& b,
                                                const vec<T, Arch>& c) noexcept {
#if FMOE_ASSEMBLY
  using real = typename vec<T, Arch>::register_type;
  if constexpr (is_avx512<Arch>) {
    const real x = a, y = b;
    real r = c;
    if constexpr (sizeof(T) == 4)
      asm("vfmadd231ps {%2, %1, %0|%0, %1, %2}" : "+v"(r) : "v"(x), "v"(y));
    else asm("vfmadd231pd {%2, %1, %0|%0, %1, %2}" : "+v"(r) : "v"(x), "v"(y));
    return r;
  } else {
    return fmadd(a, b, c);
  }
#else
  return fmadd(a, b, c);
#endif
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

// The masked forms here and below prevent a warning of g++ 12 about an uninitialised variable in
// its own header.
template <class T, class Arch>
vec<T, Arch> square_root(const vec<T, Arch>& x) {
  if constexpr (is_avx512<Arch> && sizeof(T) == 4) return _mm512_maskz_sqrt_ps(0xffff, x);
  else if constexpr (is_avx512<Arch>) return _mm512_maskz_sqrt_pd(0xff, x);
  else return xsimd::sqrt(x);
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
  constexpr auto norm = _MM_MANT_NORM_1_2;
  constexpr auto sign = _MM_MANT_SIGN_src;
  if constexpr (is_avx512<Arch> && sizeof(T) == 4) {
    return {_mm512_maskz_getmant_ps(0xffff, x, norm, sign), _mm512_maskz_getexp_ps(0xffff, x)};
  } else if constexpr (is_avx512<Arch>) {
    return {_mm512_maskz_getmant_pd(0xff, x, norm, sign), _mm512_maskz_getexp_pd(0xff, x)};
  } else {
    constexpr bool single = sizeof(T) == 4;
    using integer = std::conditional_t<single, std::int32_t, std::int64_t>;
    using integers = xsimd::batch<integer, Arch>;
    constexpr int digits = single ? 23 : 52;
    const v one(T(1)), rounder(T(single ? 0x1p23 : 0x1p52)), bias(T(single ? 127 : 1023));
    const auto bits = [](const v& y) {
      return integers(__builtin_bit_cast(typename integers::register_type,
                                         static_cast<typename v::register_type>(y)));
    };
    const auto real = [](const integers& i) {
      return v(__builtin_bit_cast(typename v::register_type,
                                  static_cast<typename integers::register_type>(i)));
    };
    const integers fraction = bits(x) & integers((integer{1} << digits) - 1);
    return {real(fraction | bits(one)), real((bits(x) >> digits) | bits(rounder)) - rounder - bias};
  }
}

// Returns bits, of which bit i is set if lane i of m is true.
template <class T, class Arch>
std::uint64_t to_bits(const mask<T, Arch>& m) {
  if constexpr (requires { m.mask(); }) {
    return m.mask();
  } else if constexpr (is_avx512<Arch>) {
    return m.data;
  } else if constexpr (std::is_base_of_v<xsimd::avx, Arch>) {
    if constexpr (sizeof(T) == 4) return static_cast<std::uint32_t>(_mm256_movemask_ps(m));
    else return static_cast<std::uint32_t>(_mm256_movemask_pd(m));
  } else if constexpr (std::is_base_of_v<xsimd::sse2, Arch>) {
    if constexpr (sizeof(T) == 4) return static_cast<std::uint32_t>(_mm_movemask_ps(m));
    else return static_cast<std::uint32_t>(_mm_movemask_pd(m));
  } else {
    bool lane[lanes<T, Arch>];
    m.store_unaligned(lane);
    std::uint64_t bits = 0;
    for (extent i = 0; i < lanes<T, Arch>; ++i) bits |= std::uint64_t{lane[i]} << i;
    return bits;
  }
}

// Returns the sum of all lanes, adding halves to halves: the order is the same in every release.
template <class T, class Arch>
T sum(const vec<T, Arch>& v) {
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
  T lane[lanes<T, Arch>];
  store<T, Arch>(lane, v);
  for (extent half = lanes<T, Arch> / 2; half > 0; half /= 2)
    for (extent i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
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
