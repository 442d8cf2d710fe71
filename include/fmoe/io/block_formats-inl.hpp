// SPDX-License-Identifier: MIT
// The blocks of ggml, and elements with scales beside them. Every product here is of a scale with
// an integer and fits a float's 24 bits, so that at most one addition rounds: a compiler may fuse
// the two or not.
#pragma once

#include <algorithm>

#include <fmoe/base/dtype.hpp>
#include <fmoe/io/block_formats.hpp>
#include <fmoe/io/little_endian.hpp>

namespace fmoe::io {

inline unsigned code_at(const std::byte* b) { return std::to_integer<unsigned>(*b); }
inline float half_at(const std::byte* b) { return static_cast<float>(load_little<f16>(b)); }

// Calls put(i, code - zero) for 32 codes: the low four bits of 16 bytes, then the high ones, each
// with its bit of `fifth` above them.
template <class F>
void for_nibbles(const std::byte* codes, std::uint32_t fifth, int zero, const F& put) {
  for (unsigned i = 0; i < 16; ++i) {
    const unsigned low = (code_at(codes + i) & 15u) | (fifth >> i & 1u) << 4;
    const unsigned high = code_at(codes + i) >> 4 | (fifth >> (i + 16) & 1u) << 4;
    put(i, static_cast<int>(low) - zero);
    put(i + 16, static_cast<int>(high) - zero);
  }
}

// Writes integers times d, plus m.
inline void decode_nibbles(const std::byte* codes, std::uint32_t fifth, int zero, float d, float m,
                           float* to) {
  for_nibbles(codes, fifth, zero,
              [&](unsigned i, int integer) { to[i] = static_cast<float>(integer) * d + m; });
}

inline constexpr float no_offset = -0.f;  // x + no_offset is x, also where x is -0

inline void decode_q4_0(const std::byte* b, float* to) {
  decode_nibbles(b + 2, 0, 8, half_at(b), no_offset, to);
}
inline void decode_q4_1(const std::byte* b, float* to) {
  decode_nibbles(b + 4, 0, 0, half_at(b), half_at(b + 2), to);
}
inline void decode_q5_0(const std::byte* b, float* to) {
  decode_nibbles(b + 6, load_little<std::uint32_t>(b + 2), 16, half_at(b), no_offset, to);
}
inline void decode_q5_1(const std::byte* b, float* to) {
  decode_nibbles(b + 8, load_little<std::uint32_t>(b + 4), 0, half_at(b), half_at(b + 2), to);
}
inline void decode_q8_0(const std::byte* b, float* to) {
  const float d = half_at(b);
  for (unsigned i = 0; i < 32; ++i)
    to[i] = static_cast<float>(static_cast<std::int8_t>(code_at(b + 2 + i))) * d;
}

// The scale and the offset of eight parts of a block of 256, in six bits each.
struct scales_of_six_bits {
  explicit scales_of_six_bits(const std::byte* b) {
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned s = code_at(b + i), m = code_at(b + 4 + i), rest = code_at(b + 8 + i);
      scale[i] = s & 63u;
      offset[i] = m & 63u;
      scale[i + 4] = (rest & 15u) | (s >> 6) << 4;
      offset[i + 4] = rest >> 4 | (m >> 6) << 4;
    }
  }
  unsigned scale[8], offset[8];
};

// Q4_K, or with a fifth bit of each number Q5_K.
inline void decode_k(const std::byte* b, const std::byte* fifth, const std::byte* codes,
                     float* to) {
  const float d = half_at(b), m = half_at(b + 2);
  const scales_of_six_bits s(b + 4);
  for (unsigned part = 0; part < 8; ++part) {
    const float scale = d * static_cast<float>(s.scale[part]);
    const float offset = m * static_cast<float>(s.offset[part]);
    const std::byte* const from = codes + 32 * (part / 2);
    const unsigned shift = 4 * (part % 2);
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned above = fifth == nullptr ? 0 : (code_at(fifth + i) >> part & 1u) << 4;
      const unsigned code = (code_at(from + i) >> shift & 15u) | above;
      to[32 * part + i] = static_cast<float>(code) * scale - offset;
    }
  }
}
inline void decode_q4_k(const std::byte* b, float* to) { decode_k(b, nullptr, b + 16, to); }
inline void decode_q5_k(const std::byte* b, float* to) { decode_k(b, b + 16, b + 48, to); }

inline void decode_q6_k(const std::byte* b, float* to) {
  const float d = half_at(b + 208);
  for (unsigned part = 0; part < 8; ++part) {  // of 32 numbers
    const unsigned half = part / 4, quarter = part % 4;
    const std::byte* const low = b + 64 * half + 32 * (quarter % 2);
    const std::byte* const high = b + 128 + 32 * half;
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned code = (code_at(low + i) >> 4 * (quarter / 2) & 15u) |
                            (code_at(high + i) >> 2 * quarter & 3u) << 4;
      const auto scale = static_cast<std::int8_t>(code_at(b + 192 + 2 * part + i / 16));
      to[32 * part + i] =
          static_cast<float>(static_cast<int>(code) - 32) * (d * static_cast<float>(scale));
    }
  }
}

inline void decode_mxfp4(const std::byte* b, float* to) {
  const float scale = half_of_e8m0(static_cast<std::uint8_t>(code_at(b)));
  for (unsigned i = 0; i < 16; ++i) {
    to[i] = twice_e2m1(code_at(b + 1 + i)) * scale;
    to[i + 16] = twice_e2m1(code_at(b + 1 + i) >> 4) * scale;
  }
}

FMOE_INLINE void decode_blocks(element_type type, const std::byte* blocks, extent count,
                               float* to) {
  const auto each = [&](const auto& decode) {
    for (extent i = 0; i < count; ++i)
      decode(blocks + i * (bits_of(type) / 8), to + i * block_of(type));
  };
  switch (type) {
    case element_type::q4_0: return each(decode_q4_0);
    case element_type::q4_1: return each(decode_q4_1);
    case element_type::q5_0: return each(decode_q5_0);
    case element_type::q5_1: return each(decode_q5_1);
    case element_type::q8_0: return each(decode_q8_0);
    case element_type::q4_k: return each(decode_q4_k);
    case element_type::q5_k: return each(decode_q5_k);
    case element_type::q6_k: return each(decode_q6_k);
    default: return each(decode_mxfp4);
  }
}

FMOE_INLINE float decode_integers(element_type type, const std::byte* b, std::int8_t* to) {
  const auto put = [to](unsigned i, auto integer) { to[i] = static_cast<std::int8_t>(integer); };
  switch (type) {
    case element_type::q4_0: for_nibbles(b + 2, 0, 8, put); return half_at(b);
    case element_type::q5_0:
      for_nibbles(b + 6, load_little<std::uint32_t>(b + 2), 16, put);
      return half_at(b);
    case element_type::q8_0:
      for (unsigned i = 0; i < 32; ++i) put(i, code_at(b + 2 + i));
      return half_at(b);
    default:
      for_nibbles(b + 1, 0, 0,
                  [&](unsigned i, int code) { put(i, twice_e2m1(static_cast<unsigned>(code))); });
      return half_of_e8m0(static_cast<std::uint8_t>(code_at(b)));
  }
}

FMOE_INLINE void decode_scaled(element_type type, const std::byte* codes,
                               const element_scales& scales, extent first, extent count,
                               float* to) {
  const extent across = divide_up(scales.columns, scales.block_columns),
               down = divide_up(scales.rows, scales.block_rows);
  for (extent done = 0, run = 0; done < count; done += run) {
    const extent at = first + done, column = at % scales.columns, row = at / scales.columns;
    const extent scale =
        (row / scales.rows * down + row % scales.rows / scales.block_rows) * across +
        column / scales.block_columns;
    run = std::min({scales.block_columns - column % scales.block_columns, scales.columns - column,
                    count - done});
    float* const y = to + done;
    if (type == element_type::f4) {
      const float s = half_of_e8m0(static_cast<std::uint8_t>(code_at(scales.bytes.data() + scale)));
      for (extent i = 0; i < run; ++i)
        y[i] = twice_e2m1(code_at(codes + (done + i) / 2) >> 4 * ((done + i) % 2)) * s;
    } else {
      const auto s = load_little<float>(scales.bytes.data() + 4 * scale);
      for (extent i = 0; i < run; ++i)
        y[i] = from_e4m3(static_cast<std::uint8_t>(code_at(codes + done + i))) * s;
    }
  }
}

FMOE_INLINE float decode_integers(const std::byte* codes, const element_scales& scales,
                                  extent first, std::int8_t* to) {
  for (unsigned i = 0; i < 32; ++i)
    to[i] = static_cast<std::int8_t>(twice_e2m1(code_at(codes + i / 2) >> 4 * (i % 2)));
  return half_of_e8m0(static_cast<std::uint8_t>(code_at(scales.bytes.data() + first / 32)));
}

}  // namespace fmoe::io
