// SPDX-License-Identifier: MIT
// What the vectors of x86-64 do in instructions of their own: the counterpart of simd_neon.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <fmoe/backend/cpu/kernels/vec.hpp>

#if FMOE_X86_64

#include <immintrin.h>

namespace fmoe::cpu {

#if defined(__F16C__) || (FMOE_MSVC && defined(__AVX2__))
inline constexpr bool has_f16c = true;
#else
inline constexpr bool has_f16c = false;
#endif

// True if an instruction converts a vector of f16.
template <class Arch>
inline constexpr bool has_f16 = is_avx512<Arch> || has_f16c;

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

// Returns integers of 32 bits, whose bits the vector holds, as numbers; each is rounded once.
template <class Arch>
vec<float, Arch> numbers_of(const vec<float, Arch>& integers) {
  const typename vec<float, Arch>::register_type bits = integers;
  if constexpr (is_avx512<Arch>) return _mm512_maskz_cvtepi32_ps(0xffff, _mm512_castps_si512(bits));
  else if constexpr (is_avx2<Arch>) return _mm256_cvtepi32_ps(_mm256_castps_si256(bits));
  else return _mm_cvtepi32_ps(_mm_castps_si128(bits));
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

// Stores integral numbers from -128 to 127 as integers of 8 bits, in a quarter of the bytes.
template <class Arch>
void store_bytes(std::int8_t* p, const vec<float, Arch>& v) {
  if constexpr (is_avx512<Arch>) {
    const __m512i wide = _mm512_maskz_cvtps_epi32(0xffff, v);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_maskz_cvtepi32_epi8(0xffff, wide));
  } else {
    float halves[4] = {};
    store_integers<Arch>(halves, v);
    const __m128i narrow = _mm_castps_si128(_mm_loadu_ps(halves));
    const __m128i bytes = _mm_packs_epi16(narrow, narrow);
    std::memcpy(p, &bytes, lanes<float, Arch>);
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

// Loads a vector of numbers stored as S.
template <class T, class Arch, class S>
vec<T, Arch> load_as(const S* p) {
  if constexpr (std::is_same_v<S, T>) {
    return load<T, Arch>(p);
  } else if constexpr (is_in_groups<S>) {
    return load<T, Arch>(reinterpret_cast<const T*>(p));  // the bits of the pairs
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
  } else {
    T buffer[lanes<T, Arch>];
    for (extent i = 0; i < lanes<T, Arch>; ++i) buffer[i] = convert<T>(p[i]);
    return load<T, Arch>(buffer);
  }
}

// Loads the two vectors of a panel's row.
template <class T, class Arch, class S>
void load_two(const S* p, vec<T, Arch>& first, vec<T, Arch>& second) {
  first = load_as<T, Arch>(p);
  second = load_as<T, Arch>(p + lanes<T, Arch>);
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

// Returns a / b, rounded once.
template <class T, class Arch>
vec<T, Arch> divide(const vec<T, Arch>& a, const vec<T, Arch>& b) {
  return a / b;
}

// The masked forms here and elsewhere prevent a warning of g++ 12 about an uninitialised variable
// in its own header.
template <class T, class Arch>
vec<T, Arch> square_root(const vec<T, Arch>& x) {
  if constexpr (is_avx512<Arch> && sizeof(T) == 4) return _mm512_maskz_sqrt_ps(0xffff, x);
  else if constexpr (is_avx512<Arch>) return _mm512_maskz_sqrt_pd(0xff, x);
  else return xsimd::sqrt(x);
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

// What follows serves only to measure the machine.

// The compiler knows nothing of these registers, and keeps them.
template <class Arch>
void keep_in_register(vec<float, Arch>& v) {
#if FMOE_ASSEMBLY
  typename vec<float, Arch>::register_type r = v;
  if constexpr (is_avx512<Arch>) asm volatile("" : "+v"(r));
  else asm volatile("" : "+x"(r));
  v = r;
#else
  float numbers[lanes<float, Arch>];
  store<float, Arch>(numbers, v);
  for (float& x : numbers) {
    const volatile float same = x;
    x = same;
  }
  v = load<float, Arch>(numbers);
#endif
}

// Dot products of four integers of 8 bits (int8_product.hpp), those of w without a sign, and of two
// bf16 numbers (bf16_product.hpp). has_int8_dots and has_bf16_dots ask the CPU.
#if FMOE_ASSEMBLY
template <class Arch>
vec<float, Arch> add_int8_dots(const vec<float, Arch>& x, const vec<float, Arch>& w,
                               const vec<float, Arch>& sum) {
  typename vec<float, Arch>::register_type r = sum, a = x, b = w;
  if constexpr (is_avx512<Arch>) asm("vpdpbusd {%2, %1, %0|%0, %1, %2}" : "+v"(r) : "v"(b), "v"(a));
  else if constexpr (is_avx2<Arch>)
    asm("%{vex%} vpdpbusd {%2, %1, %0|%0, %1, %2}" : "+x"(r) : "x"(b), "x"(a));
  return r;
}
template <class Arch>
vec<float, Arch> add_bf16_dots(const vec<float, Arch>& x, const vec<float, Arch>& w,
                               const vec<float, Arch>& sum) {
  typename vec<float, Arch>::register_type r = sum, a = x, b = w;
  if constexpr (is_avx512<Arch>)
    asm("vdpbf16ps {%2, %1, %0|%0, %1, %2}" : "+v"(r) : "v"(b), "v"(a));
  return r;
}
// The numbers of both vectors, one after the other, rounded to bf16.
template <class Arch>
vec<float, Arch> rounded_pairs(const vec<float, Arch>& first, const vec<float, Arch>& second) {
  typename vec<float, Arch>::register_type r = first, a = first, b = second;
  if constexpr (is_avx512<Arch>)
    asm("vcvtne2ps2bf16 {%1, %2, %0|%0, %2, %1}" : "=v"(r) : "v"(a), "v"(b));
  return r;
}
#else
template <class Arch>
vec<float, Arch> add_int8_dots([[maybe_unused]] const vec<float, Arch>& x,
                               [[maybe_unused]] const vec<float, Arch>& w,
                               const vec<float, Arch>& sum) {
#if FMOE_MSVC
  using real = typename vec<float, Arch>::register_type;
  const real a = x, b = w, r = sum;
  if constexpr (is_avx512<Arch>)
    return _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(r), _mm512_castps_si512(b),
                                                   _mm512_castps_si512(a)));
  else if constexpr (is_avx2<Arch>)
    return _mm256_castsi256_ps(_mm256_dpbusd_avx_epi32(
        _mm256_castps_si256(r), _mm256_castps_si256(b), _mm256_castps_si256(a)));
#endif
  return sum;
}
template <class Arch>
vec<float, Arch> rounded_pairs(const vec<float, Arch>& first, const vec<float, Arch>&) {
  return first;
}
template <class Arch>
vec<float, Arch> add_bf16_dots(const vec<float, Arch>&, const vec<float, Arch>&,
                               const vec<float, Arch>& sum) {
  return sum;
}
#endif
template <class Arch>
bool has_int8_dots() {
  return has_fused_dots<Arch>();
}
template <class Arch>
bool has_bf16_dots() {
  static const bool has = FMOE_ASSEMBLY && is_avx512<Arch> && has_cpuid<Arch>(7, 1, 0, 5);
  return has;
}

}  // namespace fmoe::cpu

#endif
