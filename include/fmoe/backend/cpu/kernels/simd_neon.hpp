// SPDX-License-Identifier: MIT
// What the vectors of ARM64 (NEON) do in instructions of their own: the counterpart of
// simd_x86.hpp. A multiply-add takes one lane of an operand here, so that products load several
// numbers of a row at a time.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include <fmoe/backend/cpu/kernels/vec.hpp>
#include <fmoe/base/platform.hpp>

#if defined(__aarch64__)

#include <arm_neon.h>

namespace fmoe::cpu {

// Every CPU converts f16.
template <class Arch>
inline constexpr bool has_f16 = true;

// Stores a whole line of the cache. Nothing is gained by not reading it first: a core that stores
// whole lines does not.
template <class T, class Arch>
void store_line(T* line, const vec<T, Arch>& v) {
  store<T, Arch>(line, v);
}
template <class Arch>
void end_lines() {}

// Loads the first n lanes from memory and fills the others with `fill`; reads no byte beyond p + n.
// n <= lanes.
template <class T, class Arch>
vec<T, Arch> load_part(const T* p, extent n, T fill = 0) {
  if (n == lanes<T, Arch>) return load<T, Arch>(p);
  if constexpr (sizeof(T) == 4) {
    float32x4_t v = vdupq_n_f32(fill);
    if (n > 0) v = vld1q_lane_f32(p, v, 0);
    if (n > 1) v = vld1q_lane_f32(p + 1, v, 1);
    if (n > 2) v = vld1q_lane_f32(p + 2, v, 2);
    return v;
  } else {
    float64x2_t v = vdupq_n_f64(fill);
    if (n > 0) v = vld1q_lane_f64(p, v, 0);
    return v;
  }
}

// Writes the first n lanes, and no byte beyond p + n. n <= lanes.
template <class T, class Arch>
void store_part(T* p, extent n, const vec<T, Arch>& v) {
  if (n == lanes<T, Arch>) return store<T, Arch>(p, v);
  if constexpr (sizeof(T) == 4) {
    if (n > 0) vst1q_lane_f32(p, v, 0);
    if (n > 1) vst1q_lane_f32(p + 1, v, 1);
    if (n > 2) vst1q_lane_f32(p + 2, v, 2);
  } else {
    if (n > 0) vst1q_lane_f64(p, v, 0);
  }
}

// Loads integers of 32 bits, whose bits p holds, as numbers; each is rounded once.
template <class Arch>
vec<float, Arch> load_integers(const float* p) {
  return vcvtq_f32_s32(vreinterpretq_s32_f32(vld1q_f32(p)));
}

// Stores integral numbers below 2^15 as integers of 16 bits, in half as many bytes.
template <class Arch>
void store_integers(float* p, const vec<float, Arch>& v) {
  vst1_f32(p, vreinterpret_f32_s16(vqmovn_s32(vcvtnq_s32_f32(v))));
}

// Stores integral numbers from -128 to 127 as integers of 8 bits, in a quarter of the bytes.
template <class Arch>
void store_bytes(std::int8_t* p, const vec<float, Arch>& v) {
  const int16x4_t narrow = vqmovn_s32(vcvtnq_s32_f32(v));
  const int8x8_t bytes = vqmovn_s16(vcombine_s16(narrow, narrow));
  std::memcpy(p, &bytes, lanes<float, Arch>);
}

// Writes back what caches hold of these bytes and drops it, so that the next read is from memory.
// No line of a cache is shorter than 64 bytes.
template <class Arch>
void flush(std::byte* p, extent bytes) {
  for (extent i = 0; i < bytes; i += 64) asm volatile("dc civac, %0" : : "r"(p + i) : "memory");
  asm volatile("dsb ish" : : : "memory");
}

// Loads a vector of numbers stored as S.
template <class T, class Arch, class S>
vec<T, Arch> load_as(const S* p) {
  if constexpr (std::is_same_v<S, T>) {
    return load<T, Arch>(p);
  } else if constexpr (is_integers<S>) {
    return load<T, Arch>(reinterpret_cast<const T*>(p));  // the bits of pairs or quads
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<S, std::int8_t>) {
    std::uint32_t four;
    std::memcpy(&four, p, sizeof four);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<S, bf16>) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&p->bits), 16));
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<S, f16>) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p->bits)));
  } else {
    T buffer[lanes<T, Arch>];
    for (extent i = 0; i < lanes<T, Arch>; ++i) buffer[i] = convert<T>(p[i]);
    return load<T, Arch>(buffer);
  }
}

// Loads the two vectors of a panel's row with one load, if numbers are narrow. Pairs of integers
// become all first ones and all second ones (add_dots_lane).
template <class T, class Arch, class S>
void load_two(const S* p, vec<T, Arch>& first, vec<T, Arch>& second) {
  if constexpr (is_int16_pair<S>) {
    const auto* const from = reinterpret_cast<const std::int16_t*>(p);
    const int16x8_t a = vld1q_s16(from), b = vld1q_s16(from + 8);
    first = vreinterpretq_f32_s16(vuzp1q_s16(a, b));
    second = vreinterpretq_f32_s16(vuzp2q_s16(a, b));
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<S, std::int8_t>) {
    const int16x8_t wide = vmovl_s8(vld1_s8(p));
    first = vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
    second = vcvtq_f32_s32(vmovl_high_s16(wide));
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<S, bf16>) {
    const uint16x8_t both = vld1q_u16(&p->bits);
    first = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(both), 16));
    second = vreinterpretq_f32_u32(vshll_high_n_u16(both, 16));
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<S, f16>) {
    const float16x8_t both = vreinterpretq_f16_u16(vld1q_u16(&p->bits));
    first = vcvt_f32_f16(vget_low_f16(both));
    second = vcvt_high_f32_f16(both);
  } else {
    first = load_as<T, Arch>(p);
    second = load_as<T, Arch>(p + lanes<T, Arch>);
  }
}

// Quotients and roots of xsimd 8 are estimates here; these are rounded once.
template <class T, class Arch>
vec<T, Arch> divide(const vec<T, Arch>& a, const vec<T, Arch>& b) {
  if constexpr (sizeof(T) == 4) return vdivq_f32(a, b);
  else return vdivq_f64(a, b);
}
template <class T, class Arch>
vec<T, Arch> square_root(const vec<T, Arch>& x) {
  if constexpr (sizeof(T) == 4) return vsqrtq_f32(x);
  else return vsqrtq_f64(x);
}

// Returns a b + c, rounded once.
template <class T, class Arch>
vec<T, Arch> fmadd(const vec<T, Arch>& a, const vec<T, Arch>& b, const vec<T, Arch>& c) {
  if constexpr (sizeof(T) == 4) return vfmaq_f32(c, a, b);
  else return vfmaq_f64(c, a, b);
}

// Returns w times lane `Lane` of x, added to sum and rounded once.
template <extent Lane, class T, class Arch>
FMOE_ALWAYS_INLINE vec<T, Arch> fmadd_lane(const vec<T, Arch>& x, const vec<T, Arch>& w,
                                           const vec<T, Arch>& sum) noexcept {
  if constexpr (sizeof(T) == 4) return vfmaq_laneq_f32(sum, w, x, Lane);
  else return vfmaq_laneq_f64(sum, w, x, Lane);
}

// Adds the products of a pair of integers, lane `Lane` of x, with the pairs of two vectors' columns
// (load_two). The sums are integers of 32 bits, whose bits the vectors hold; they wrap around.
template <extent Lane, class Arch>
FMOE_ALWAYS_INLINE void add_dots_lane(const vec<float, Arch>& x, const vec<float, Arch>& firsts,
                                      const vec<float, Arch>& seconds, vec<float, Arch>& lower,
                                      vec<float, Arch>& upper) noexcept {
  const auto integers = [](float32x4_t v) { return vreinterpretq_s16_f32(v); };
  const int16x8_t pair = integers(x), a = integers(firsts), b = integers(seconds);
  int32x4_t low = vreinterpretq_s32_f32(lower), high = vreinterpretq_s32_f32(upper);
  low = vmlal_laneq_s16(low, vget_low_s16(a), pair, 2 * Lane);
  high = vmlal_high_laneq_s16(high, a, pair, 2 * Lane);
  low = vmlal_laneq_s16(low, vget_low_s16(b), pair, 2 * Lane + 1);
  high = vmlal_high_laneq_s16(high, b, pair, 2 * Lane + 1);
  lower = vreinterpretq_f32_s32(low);
  upper = vreinterpretq_f32_s32(high);
}

// True if the CPU multiplies integers of 8 bits so. The first level of ARM64 does not contain it.
template <class Arch>
bool has_int8_dots() {
  static const bool has = FMOE_ASSEMBLY && detail::has_int8_dots();
  return has;
}

// Makes a new sum of a, b and a sum by an instruction that CPUs have from ARMv8.2 or 8.6 on alone.
// It is a number in assembly, made of those of its registers: a function of another target could
// not be inlined, and an assembler takes the name for such CPUs only.
template <std::uint32_t Instruction, class Arch>
FMOE_ALWAYS_INLINE vec<float, Arch> new_sum(const vec<float, Arch>& a, const vec<float, Arch>& b,
                                            const vec<float, Arch>& sum) noexcept {
  float32x4_t r = sum;
#if FMOE_ASSEMBLY
  const float32x4_t first = a, second = b;
  asm(".ifndef .Lfmoe_v31\n\t"
      ".irp "
      "n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\t"
      ".set .Lfmoe_v\\n,\\n\n\t"
      ".endr\n\t"
      ".endif\n\t"
      ".inst %c3 + (.Lfmoe_%2 << 16) + (.Lfmoe_%1 << 5) + .Lfmoe_%0"
      : "+w"(r)
      : "w"(first), "w"(second), "i"(Instruction));
#endif
  return r;
}

// Adds the products of four integers of 8 bits, lane `Lane` of x, with the quads of w's columns
// (SDOT). The sums are integers of 32 bits, whose bits the vectors hold; they wrap around.
template <extent Lane, class Arch>
FMOE_ALWAYS_INLINE vec<float, Arch> add_int8_dots_lane(const vec<float, Arch>& x,
                                                       const vec<float, Arch>& w,
                                                       const vec<float, Arch>& sum) noexcept {
  return new_sum<0x4f80e000 + (Lane % 2 << 21) + (Lane / 2 << 11), Arch>(w, x, sum);
}

// Adds the products of two rows, the halves of x, with two columns, those of w: of the first row
// with both columns, then of the second one. Sums of integers have 32 bits, whose bits the vectors
// hold, and wrap around. Of four bf16 numbers two products are added up, and then to the sum, and
// so are the other two; each addition rounds to odd (toward 0, and the last bit becomes 1 unless
// the sum is exact).
template <tile_numbers Of, class Arch>
FMOE_ALWAYS_INLINE vec<float, Arch> add_matrices(const vec<float, Arch>& x,
                                                 const vec<float, Arch>& w,
                                                 const vec<float, Arch>& sum) noexcept {
  return new_sum < Of == tile_numbers::int8_quads ? 0x4e80a400 : 0x6e40ec00, Arch > (x, w, sum);
}

// Returns the lower lanes of two vectors in turn, and the upper ones: xsimd::zip_lo and zip_hi, for
// which g++ 12 uses the stack.
template <class Arch>
FMOE_ALWAYS_INLINE vec<float, Arch> lower_in_turn(const vec<float, Arch>& a,
                                                  const vec<float, Arch>& b) noexcept {
  return vzip1q_f32(a, b);
}
template <class Arch>
FMOE_ALWAYS_INLINE vec<float, Arch> upper_in_turn(const vec<float, Arch>& a,
                                                  const vec<float, Arch>& b) noexcept {
  return vzip2q_f32(a, b);
}

// Returns the lower halves of two vectors, one after the other, and the upper ones.
template <class Arch>
FMOE_ALWAYS_INLINE vec<float, Arch> lower_halves(const vec<float, Arch>& a,
                                                 const vec<float, Arch>& b) noexcept {
  return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
template <class Arch>
FMOE_ALWAYS_INLINE vec<float, Arch> upper_halves(const vec<float, Arch>& a,
                                                 const vec<float, Arch>& b) noexcept {
  return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

// Returns 256 times integers of 32 bits plus others; vectors hold their bits.
template <class Arch>
vec<float, Arch> joined_halves(const vec<float, Arch>& upper, const vec<float, Arch>& lower) {
  return vreinterpretq_f32_s32(
      vaddq_s32(vshlq_n_s32(vreinterpretq_s32_f32(upper), 8), vreinterpretq_s32_f32(lower)));
}

// Returns integers of 32 bits, whose bits the vector holds, times 256.
template <class Arch>
vec<float, Arch> times_256(const vec<float, Arch>& v) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(v), 8));
}

// Returns integers of 32 bits, whose bits the vector holds, as numbers; each is rounded once.
template <class Arch>
vec<float, Arch> numbers_of(const vec<float, Arch>& integers) {
  return vcvtq_f32_s32(vreinterpretq_s32_f32(integers));
}

// Returns the sum with the products of four integers of 8 bits: the quad that all lanes of x hold,
// and those of w's columns.
template <class Arch>
vec<float, Arch> add_int8_dots(const vec<float, Arch>& x, const vec<float, Arch>& w,
                               const vec<float, Arch>& sum) {
  return add_int8_dots_lane<0, Arch>(x, w, sum);
}

// Returns p; the compiler reads from it after it has computed v.
template <class T, class Arch>
FMOE_ALWAYS_INLINE const std::byte* pointer_after(const std::byte* p,
                                                  const vec<T, Arch>& v) noexcept {
#if FMOE_ASSEMBLY
  const typename vec<T, Arch>::register_type computed = v;
  asm("" : "+r"(p) : "w"(computed));
#endif
  return p;
}

// x86-64 has instructions that add two products of pairs to each sum; here there is none that does
// and rounds as they do.
template <class Arch>
bool has_fused_dots() {
  return false;
}
template <class Arch>
bool has_bf16_dots() {
  return false;
}

// Returns bits, of which bit i is set if lane i of m is true.
template <class T, class Arch>
std::uint64_t to_bits(const mask<T, Arch>& m) {
  if constexpr (sizeof(T) == 4) {
    constexpr std::uint32_t bit[] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, vld1q_u32(bit)));
  } else {
    constexpr std::uint64_t bit[] = {1, 2};
    return vaddvq_u64(vandq_u64(m, vld1q_u64(bit)));
  }
}

// What follows serves only to measure the machine.

// The compiler knows nothing of these registers, and keeps them.
template <class Arch>
void keep_in_register(vec<float, Arch>& v) {
  float32x4_t r = v;
  asm volatile("" : "+w"(r));
  v = r;
}

// Half of add_dots_lane, for one vector of sums.
template <bool, class Arch>
vec<float, Arch> add_dots(const vec<float, Arch>& x, const vec<float, Arch>& w,
                          const vec<float, Arch>& sum) {
  const int16x8_t pair = vreinterpretq_s16_f32(x), both = vreinterpretq_s16_f32(w);
  int32x4_t r = vreinterpretq_s32_f32(sum);
  r = vmlal_laneq_s16(r, vget_low_s16(both), pair, 0);
  r = vmlal_high_laneq_s16(r, both, pair, 1);
  return vreinterpretq_f32_s32(r);
}

}  // namespace fmoe::cpu

#endif
