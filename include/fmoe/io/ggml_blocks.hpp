// SPDX-License-Identifier: MIT
// The blocks of ggml (ggml-quants.c and its specification of GGUF), one struct a type. read()
// writes a block's integers, and for each `part` of them a scale, and an offset where the type
// has_offsets: number i of the block is integers[i] * scales[i / part] + offsets[i / part]. A scale
// has at most 17 bits and an integer 8, so that the product fits a float and the sum alone rounds.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <fmoe/base/compiler.hpp>
#include <fmoe/base/dtype.hpp>
#include <fmoe/io/block_formats.hpp>
#include <fmoe/io/little_endian.hpp>

namespace fmoe::io::ggml {

using bytes = const std::uint8_t*;

template <class T>
T load(bytes b) {
  return load_little<T>(reinterpret_cast<const std::byte*>(b));
}
inline float half_at(bytes b) { return static_cast<float>(load<f16>(b)); }

// The low or the high four bits of a byte.
inline unsigned nibble(std::uint8_t byte, unsigned high) {
  return unsigned{byte} >> 4 * high & 15u;
}

// Writes eight integers of a word whose lowest byte is the first of them.
inline void put_eight(std::uint64_t word, std::int8_t* to) {
  store_little(word, reinterpret_cast<std::byte*>(to));
}

// Returns eight bytes, 0 or 1, of the bits of one, whose lowest is the first.
inline std::uint64_t spread(unsigned eight_bits) {
  const std::uint64_t apart = (eight_bits * 0x0101010101010101u) & 0x8040201008040201u;
  return (apart + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}

// Eight integers of 0 to 127 less one of them, as a word.
inline std::uint64_t less(std::uint64_t eight, unsigned one) {
  constexpr std::uint64_t signs = 0x8080808080808080u;
  return ((eight | signs) - one * 0x0101010101010101u) ^ signs;
}

// Writes the low four bits of 16 bytes, and behind them the high ones, with bit i of `fifth` above
// number i, less `zero`.
inline void put_nibbles(bytes codes, std::uint32_t fifth, unsigned zero, std::int8_t* to) {
  for (unsigned i = 0; i < 16; i += 8) {
    const auto eight = load<std::uint64_t>(codes + i);
    const std::uint64_t low = (eight & 0x0f0f0f0f0f0f0f0fu) | spread(fifth >> i & 255u) << 4,
                        high = (eight >> 4 & 0x0f0f0f0f0f0f0f0fu) | spread(fifth >> (16 + i) & 255u)
                                                                        << 4;
    put_eight(less(low, zero), to + i);
    put_eight(less(high, zero), to + 16 + i);
  }
}

// The same of `half` bytes.
inline void put_nibbles(bytes codes, unsigned half, std::int8_t* to) {
  for (unsigned i = 0; i < half; ++i) {
    to[i] = static_cast<std::int8_t>(codes[i] & 15);
    to[i + half] = static_cast<std::int8_t>(codes[i] >> 4);
  }
}

#if FMOE_HAS_BYTE_SHUFFLE
// put_listed of eight bytes at a time.
FMOE_SHUFFLES_BYTES inline void put_shuffled(const std::int8_t* list, bytes codes, unsigned half,
                                             std::int8_t* to) {
  constexpr std::uint64_t low = 0x0f0f0f0f0f0f0f0fu;
  using sixteen = detail::vector_of<char, 16>;
  sixteen numbers;
  std::memcpy(&numbers, list, 16);
  for (unsigned i = 0; i < half; i += 8) {
    const auto eight = load<std::uint64_t>(codes + i);
    const detail::vector_of<std::uint64_t, 2> nibbles{eight & low, eight >> 4 & low};
    const sixteen found = FMOE_SHUFFLED_BYTES(numbers, std::bit_cast<sixteen>(nibbles));
    std::memcpy(to + i, &found, 8);
    std::memcpy(to + i + half, reinterpret_cast<const char*>(&found) + 8, 8);
  }
}
#endif

// Writes the numbers of a list of 16 whose places are the low four bits of `half` bytes, and behind
// them those of the high ones.
inline void put_listed(const std::int8_t* list, bytes codes, unsigned half, std::int8_t* to) {
#if FMOE_HAS_BYTE_SHUFFLE
  if (detail::has_byte_shuffle()) return put_shuffled(list, codes, half, to);
#endif
  for (unsigned i = 0; i < half; ++i) {
    to[i] = list[codes[i] & 15];
    to[i + half] = list[codes[i] >> 4];
  }
}

// Twice the numbers of E2M1. ggml's zero has no sign.
inline constexpr std::int8_t twice_e2m1_numbers[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};
inline constexpr std::int8_t iq4_numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                1,    13,   25,  38,  53,  69,  89,  113};

// What a type says of its blocks.
template <element_type Type, unsigned Part, bool HasOffsets = false>
struct block {
  static constexpr element_type type = Type;
  static constexpr unsigned part = Part;
  static constexpr bool has_offsets = HasOffsets;
};

struct q4_0 : block<element_type::q4_0, 32> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    scales[0] = half_at(b);
    put_nibbles(b + 2, 0, 8, to);
  }
};

struct q4_1 : block<element_type::q4_1, 32, true> {
  static void read(bytes b, std::int8_t* to, float* scales, float* offsets) {
    scales[0] = half_at(b);
    offsets[0] = half_at(b + 2);
    put_nibbles(b + 4, 0, 0, to);
  }
};

struct q5_0 : block<element_type::q5_0, 32> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    scales[0] = half_at(b);
    put_nibbles(b + 6, load<std::uint32_t>(b + 2), 16, to);
  }
};

struct q5_1 : block<element_type::q5_1, 32, true> {
  static void read(bytes b, std::int8_t* to, float* scales, float* offsets) {
    scales[0] = half_at(b);
    offsets[0] = half_at(b + 2);
    put_nibbles(b + 8, load<std::uint32_t>(b + 4), 0, to);
  }
};

struct q8_0 : block<element_type::q8_0, 32> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    scales[0] = half_at(b);
    for (unsigned i = 0; i < 32; ++i) to[i] = static_cast<std::int8_t>(b[2 + i]);
  }
};

// Writes 256 codes of two bits, of 64 bytes: 32 bytes have four times 32 of them.
inline void put_quarters(bytes codes, std::int8_t* to) {
  for (unsigned run = 0; run < 8; ++run)
    for (unsigned i = 0; i < 32; ++i)
      to[32 * run + i] = static_cast<std::int8_t>(codes[32 * (run / 4) + i] >> 2 * (run % 4) & 3);
}

struct q2_k : block<element_type::q2_k, 16, true> {
  static void read(bytes b, std::int8_t* to, float* scales, float* offsets) {
    const float d = half_at(b + 80), m = -half_at(b + 82);
    for (unsigned i = 0; i < 16; ++i) {
      scales[i] = d * static_cast<float>(nibble(b[i], 0));
      offsets[i] = m * static_cast<float>(nibble(b[i], 1));
    }
    put_quarters(b + 16, to);
  }
};

struct q3_k : block<element_type::q3_k, 16> {
  // A third bit that is not set stands for -4. Scales have six bits, the high two apart.
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    const bytes six_bits = b + 96;
    const float d = half_at(b + 108);
    for (unsigned i = 0; i < 16; ++i) {
      const unsigned low = nibble(six_bits[i % 8], i / 8),
                     high = unsigned{six_bits[8 + i % 4]} >> 2 * (i / 4) & 3u;
      scales[i] = d * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    }
    put_quarters(b + 32, to);
    for (unsigned run = 0; run < 8; ++run)
      for (unsigned i = 0; i < 32; ++i)
        to[32 * run + i] =
            static_cast<std::int8_t>((to[32 * run + i] | (b[i] >> run & 1) << 2) - 4);
  }
};

// The scales and the offsets of the eight parts of a block, in six bits each.
inline void read_six_bits(bytes b, float* scales, float* offsets) {
  const float d = half_at(b), m = -half_at(b + 2);
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned s = b[4 + i], o = b[8 + i], rest = b[12 + i];
    scales[i] = d * static_cast<float>(s & 63u);
    offsets[i] = m * static_cast<float>(o & 63u);
    scales[i + 4] = d * static_cast<float>((rest & 15u) | (s >> 6) << 4);
    offsets[i + 4] = m * static_cast<float>(rest >> 4 | (o >> 6) << 4);
  }
}

struct q4_k : block<element_type::q4_k, 32, true> {
  static void read(bytes b, std::int8_t* to, float* scales, float* offsets) {
    read_six_bits(b, scales, offsets);
    for (unsigned run = 0; run < 4; ++run) put_nibbles(b + 16 + 32 * run, 32, to + 64 * run);
  }
};

struct q5_k : block<element_type::q5_k, 32, true> {
  static void read(bytes b, std::int8_t* to, float* scales, float* offsets) {
    read_six_bits(b, scales, offsets);
    for (unsigned run = 0; run < 4; ++run) put_nibbles(b + 48 + 32 * run, 32, to + 64 * run);
    for (unsigned run = 0; run < 8; ++run)
      for (unsigned i = 0; i < 32; ++i)
        to[32 * run + i] = static_cast<std::int8_t>(to[32 * run + i] | (b[16 + i] >> run & 1) << 4);
  }
};

struct q6_k : block<element_type::q6_k, 16> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    const float d = half_at(b + 208);
    for (unsigned i = 0; i < 16; ++i)
      scales[i] = d * static_cast<float>(static_cast<std::int8_t>(b[192 + i]));
    for (unsigned half = 0; half < 2; ++half) {
      std::int8_t* const y = to + 128 * half;
      put_nibbles(b + 64 * half, 64, y);
      const bytes high = b + 128 + 32 * half;
      for (unsigned run = 0; run < 4; ++run)
        for (unsigned i = 0; i < 32; ++i)
          y[32 * run + i] =
              static_cast<std::int8_t>((y[32 * run + i] | (high[i] >> 2 * run & 3) << 4) - 32);
    }
  }
};

struct iq4_nl : block<element_type::iq4_nl, 32> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    scales[0] = half_at(b);
    put_listed(iq4_numbers, b + 2, 16, to);
  }
};

struct iq4_xs : block<element_type::iq4_xs, 32> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    const float d = half_at(b);
    const unsigned above = load<std::uint16_t>(b + 2);
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned scale = nibble(b[4 + i / 2], i % 2) | (above >> 2 * i & 3u) << 4;
      scales[i] = d * static_cast<float>(static_cast<int>(scale) - 32);
      put_listed(iq4_numbers, b + 8 + 16 * i, 16, to + 32 * i);
    }
  }
};

struct mxfp4 : block<element_type::mxfp4, 32> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    scales[0] = half_of_e8m0(b[0]);
    put_listed(twice_e2m1_numbers, b + 1, 16, to);
  }
};

// Scales are E4M3 without a sign. Where E4M3 has NaN, ggml has 0, or the number that would follow
// the greatest one if the ignored sign is set.
struct nvfp4 : block<element_type::nvfp4, 16> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    for (unsigned i = 0; i < 4; ++i) {
      const float unsigned_nan = b[i] == 0x7f ? 0.f : 480.f;
      const std::uint8_t code = b[i] & 0x7fu;
      scales[i] = 0.5f * (code == 0x7f ? unsigned_nan : from_e4m3(code));
      put_listed(twice_e2m1_numbers, b + 4 + 8 * i, 8, to + 16 * i);
    }
  }
};

// Five numbers of -1, 0 and 1 a byte, which is their fraction of 3^5 in base 3.
struct tq1_0 : block<element_type::tq1_0, 256> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    scales[0] = half_at(b + 52);
    put_digits(b, 32, 5, to);
    put_digits(b + 32, 16, 5, to + 160);
    put_digits(b + 48, 4, 4, to + 240);
  }

 private:
  static void put_digits(bytes b, unsigned count, unsigned digits, std::int8_t* to) {
    constexpr std::uint8_t powers[] = {1, 3, 9, 27, 81};
    for (unsigned digit = 0; digit < digits; ++digit)
      for (unsigned i = 0; i < count; ++i) {
        const auto fraction = static_cast<std::uint8_t>(b[i] * powers[digit]);
        to[digit * count + i] = static_cast<std::int8_t>((fraction * 3 >> 8) - 1);
      }
  }
};

struct tq2_0 : block<element_type::tq2_0, 256> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    scales[0] = half_at(b + 64);
    put_quarters(b, to);
    for (unsigned i = 0; i < 256; ++i) to[i] = static_cast<std::int8_t>(to[i] - 1);
  }
};

}  // namespace fmoe::io::ggml
