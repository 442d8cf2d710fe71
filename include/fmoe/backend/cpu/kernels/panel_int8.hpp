// SPDX-License-Identifier: MIT
// Weights of 8 bits in panels, and how vectors of them are widened.
#pragma once

#include <cstdint>
#include <type_traits>

#include <fmoe/backend/cpu/kernels/simd.hpp>

namespace fmoe::cpu {

// An integer of a panel of 8-bit weights (pack.hpp). In front of each `group` rows of a panel stand
// the scales of its columns, in f16 only where the instruction set has it. All forms of Arch read
// the same panels and make the same floats; int8_kernels.hpp takes the faster one.
enum class int8_form { converted, shuffled };
template <class Q, class Arch, int8_form Form = int8_form::converted>
struct panel_int8 {
  using scale =
      std::conditional_t<std::is_same_v<typename Q::scale, f16> && has_f16<Arch>, f16, float>;
  static constexpr extent group = std::min<extent>(Q::block, 256);
  // True if integer i stands there as i + 128, in a byte without a sign (load_scaled).
  static constexpr bool is_biased = std::is_same_v<scale, f16> && is_avx512<Arch>;
  static constexpr bool is_shuffled = Form == int8_form::shuffled;
  static_assert(is_biased || !is_shuffled);
  // Biased integers are loaded as floats that are greater by so much.
  static constexpr float shift = is_shuffled ? 0x1p15f + 128 : 128;
  std::int8_t value;
};

template <class S>
inline constexpr bool is_panel_int8 = false;
template <class Q, class Arch, int8_form Form>
inline constexpr bool is_panel_int8<panel_int8<Q, Arch, Form>> = true;

template <class S>
inline constexpr bool is_shuffled = false;
template <class Q, class Arch, int8_form Form>
inline constexpr bool is_shuffled<panel_int8<Q, Arch, Form>> =
    panel_int8<Q, Arch, Form>::is_shuffled;

// Loads integers of a panel, for load_scaled. Shuffled ones become 2^15 + 128 + i in one
// instruction: byte i + 128 takes the place of the second byte of 2^15, whose unit is 1.
template <class T, class Arch, class Q, int8_form Form>
FMOE_ALWAYS_INLINE vec<T, Arch> load_integers(const panel_int8<Q, Arch, Form>* p) {
#if FMOE_X86_64
  using element = panel_int8<Q, Arch, Form>;
  if constexpr (element::is_shuffled) {
    const __m512i four =
        _mm512_maskz_broadcast_i32x4(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i from =
        _mm512_set_epi32(0x0f00, 0x0e00, 0x0d00, 0x0c00, 0x0b00, 0x0a00, 0x0900, 0x0800, 0x0700,
                         0x0600, 0x0500, 0x0400, 0x0300, 0x0200, 0x0100, 0x0000);
    return _mm512_castsi512_ps(
        _mm512_mask_shuffle_epi8(_mm512_set1_epi32(0x47000000), 0x2222222222222222, four, from));
  } else if constexpr (element::is_biased) {
    return _mm512_maskz_cvtepi32_ps(
        0xffff,
        _mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  } else
#endif
  {
    return load_as<T, Arch>(&p->value);
  }
}

// The scales of columns, and what load_scaled subtracts.
template <class T, class Arch>
struct column_scales {
  vec<T, Arch> factor, shift;
};

template <class S, class T, class Arch>
column_scales<T, Arch> scales_of(const vec<T, Arch>& factor) {
  return {factor, factor * vec<T, Arch>(T(S::shift))};
}

// Loads weights of a panel: integers times scales, rounded once. The shift of biased integers costs
// nothing, and all is exact: a finite scale of f16 has 11 significant bits, 2^15 + 128 has 9, and
// their product is a float. (-0 is +0 here. No sum that began with +0 shows it.)
template <class T, class Arch, class Q, int8_form Form>
FMOE_ALWAYS_INLINE vec<T, Arch> load_scaled(const panel_int8<Q, Arch, Form>* p,
                                            const column_scales<T, Arch>& scales) {
  const vec<T, Arch> integers = load_integers<T, Arch>(p);
  if constexpr (panel_int8<Q, Arch, Form>::is_biased)
    return _mm512_maskz_fmsub_ps(0xffff, integers, scales.factor, scales.shift);
  else return integers * scales.factor;
}

}  // namespace fmoe::cpu
