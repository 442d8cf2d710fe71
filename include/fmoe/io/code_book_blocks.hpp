// SPDX-License-Identifier: MIT
// The blocks of ggml whose integers are rows of a code book (code_books.hpp), as ggml_blocks.hpp
// has the others. A row of IQ2 and IQ3 has the magnitudes of its weights, and their signs stand
// beside it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <fmoe/io/code_books.hpp>
#include <fmoe/io/ggml_blocks.hpp>

namespace fmoe::io::ggml {

// The rows of a book as integers, each of `bits` bits of the book's word. The first is the lowest
// byte.
template <class Row, std::size_t Count, std::size_t Values>
auto rows_of(const std::uint16_t (&book)[Count], const std::uint8_t (&values)[Values]) {
  constexpr unsigned integers = sizeof(Row), bits = 16 / integers;
  std::array<Row, Count> rows{};
  for (std::size_t r = 0; r < Count; ++r)
    for (unsigned i = 0; i < integers; ++i) {
      const unsigned place = book[r] >> bits * i & ((1u << bits) - 1);
      rows[r] |= static_cast<Row>(Row{values[place]} << 8 * i);
    }
  return rows;
}

// Seven signs of eight, and the last, which makes the number of negative ones even.
inline unsigned eight_signs(unsigned seven) {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1u) << 7;
}

// Writes eight magnitudes, none of which is 0, with the signs of these bits.
inline void put_signed(std::uint64_t magnitudes, unsigned negative, std::int8_t* to) {
  const std::uint64_t ones = spread(negative);
  put_eight((magnitudes ^ ones * 255) + ones, to);
}

inline constexpr std::uint8_t iq2_magnitudes[] = {8, 25, 43};

struct iq2_xxs : block<element_type::iq2_xxs, 32> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    static const auto rows = rows_of<std::uint64_t>(book_of_iq2_xxs, iq2_magnitudes);
    const float d = half_at(b) * 0.125f;
    for (unsigned p = 0; p < 8; ++p) {
      const bytes numbers = b + 2 + 8 * p;
      const auto rest = load<std::uint32_t>(numbers + 4);
      scales[p] = d * static_cast<float>(2 * (rest >> 28) + 1);
      for (unsigned i = 0; i < 4; ++i)
        put_signed(rows[numbers[i]], eight_signs(rest >> 7 * i & 127u), to + 32 * p + 8 * i);
    }
  }
};

// Sixteen scales that are an odd number of four and a bit, times d.
inline void read_odd_scales(float d, bytes b, float* scales) {
  for (unsigned i = 0; i < 16; ++i)
    scales[i] = d * static_cast<float>(2 * nibble(b[i / 2], i % 2) + 1);
}

struct iq2_xs : block<element_type::iq2_xs, 16> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    static const auto rows = rows_of<std::uint64_t>(book_of_iq2_xs, iq2_magnitudes);
    read_odd_scales(half_at(b) * 0.125f, b + 66, scales);
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned code = load<std::uint16_t>(b + 2 + 2 * i);
      put_signed(rows[code & 511u], eight_signs(code >> 9), to + 8 * i);
    }
  }
};

struct iq2_s : block<element_type::iq2_s, 16> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    static const auto rows = rows_of<std::uint64_t>(book_of_iq2_s, iq2_magnitudes);
    const bytes low = b + 2, signs = b + 34, high = b + 66;
    read_odd_scales(half_at(b) * 0.125f, b + 74, scales);
    for (unsigned i = 0; i < 32; ++i)
      put_signed(rows[low[i] | (unsigned{high[i / 4]} >> 2 * (i % 4) & 3u) << 8], signs[i],
                 to + 8 * i);
  }
};

struct iq3_xxs : block<element_type::iq3_xxs, 32> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    constexpr std::uint8_t magnitudes[] = {4, 12, 20, 28, 36, 44, 52, 62};
    static const auto rows = rows_of<std::uint32_t>(book_of_iq3_xxs, magnitudes);
    const float d = half_at(b) * 0.25f;
    for (unsigned p = 0; p < 8; ++p) {
      const auto rest = load<std::uint32_t>(b + 66 + 4 * p);
      scales[p] = d * static_cast<float>(2 * (rest >> 28) + 1);
      for (unsigned i = 0; i < 4; ++i) {
        const bytes two = b + 2 + 8 * p + 2 * i;
        put_signed(rows[two[0]] | std::uint64_t{rows[two[1]]} << 32,
                   eight_signs(rest >> 7 * i & 127u), to + 32 * p + 8 * i);
      }
    }
  }
};

struct iq3_s : block<element_type::iq3_s, 32> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    constexpr std::uint8_t magnitudes[] = {1, 3, 5, 7, 9, 11, 13, 15};
    static const auto rows = rows_of<std::uint32_t>(book_of_iq3_s, magnitudes);
    const float d = half_at(b);
    const bytes high = b + 66, signs = b + 74;
    for (unsigned p = 0; p < 8; ++p)
      scales[p] = d * static_cast<float>(2 * nibble(b[106 + p / 2], p % 2) + 1);
    for (unsigned i = 0; i < 32; ++i) {
      const bytes two = b + 2 + 2 * i;
      const unsigned above = static_cast<unsigned>(high[i / 4]) >> 2 * (i % 4);
      const std::uint64_t second = rows[two[1] | (above >> 1 & 1u) << 8];
      put_signed(rows[two[0] | (above & 1u) << 8] | second << 32, signs[i], to + 8 * i);
    }
  }
};

// The rows of IQ1 have -1, 0 and 1, to which 1/8 is added, or subtracted. Eight times that are the
// integers 8 v + 1 and 8 v - 1.
inline constexpr std::uint8_t iq1_above[] = {0xf9, 0x01, 0x09}, iq1_below[] = {0xf7, 0xff, 0x07};
struct iq1_rows {
  static std::uint64_t at(unsigned row, bool below) {
    static const auto rows_above = rows_of<std::uint64_t>(book_of_iq1_s, iq1_above),
                      rows_below = rows_of<std::uint64_t>(book_of_iq1_s, iq1_below);
    return below ? rows_below[row] : rows_above[row];
  }
};

struct iq1_s : block<element_type::iq1_s, 32> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    const float d = half_at(b) * 0.125f;
    for (unsigned p = 0; p < 8; ++p) {
      const unsigned rest = load<std::uint16_t>(b + 34 + 2 * p);
      scales[p] = d * static_cast<float>(2 * (rest >> 12 & 7u) + 1);
      for (unsigned i = 0; i < 4; ++i)
        put_eight(iq1_rows::at(b[2 + 4 * p + i] | (rest >> 3 * i & 7u) << 8, rest >> 15 != 0),
                  to + 32 * p + 8 * i);
    }
  }
};

// The 16 bits of d are the highest four of each of four words, which have four scales below them.
struct iq1_m : block<element_type::iq1_m, 16> {
  static void read(bytes b, std::int8_t* to, float* scales, float*) {
    unsigned words[4], bits = 0;
    for (unsigned i = 0; i < 4; ++i) {
      words[i] = load<std::uint16_t>(b + 48 + 2 * i);
      bits |= words[i] >> 12 << 4 * i;
    }
    const float d =
        static_cast<float>(std::bit_cast<f16>(static_cast<std::uint16_t>(bits))) * 0.125f;
    for (unsigned p = 0; p < 16; ++p)
      scales[p] = d * static_cast<float>(2 * (words[p / 4] >> 3 * (p % 4) & 7u) + 1);
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned high = nibble(b[32 + i / 2], i % 2);
      put_eight(iq1_rows::at(b[i] | (high & 7u) << 8, high >= 8), to + 8 * i);
    }
  }
};

}  // namespace fmoe::io::ggml
