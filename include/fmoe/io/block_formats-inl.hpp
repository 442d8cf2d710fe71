// SPDX-License-Identifier: MIT
// The blocks of ggml, and elements with scales beside them. A product that is added to something
// fits a float's 24 bits, so that a compiler may fuse the two or not.
#pragma once

#include <algorithm>

#include <fmoe/base/compiler.hpp>
#include <fmoe/base/dtype.hpp>
#include <fmoe/io/block_formats.hpp>
#include <fmoe/io/code_book_blocks.hpp>
#include <fmoe/io/ggml_blocks.hpp>
#include <fmoe/io/little_endian.hpp>

namespace fmoe::io {

// Calls f with the type of ggml's blocks.
template <class F>
auto with_blocks(element_type type, const F& f) {
  switch (type) {
    case element_type::q4_0: return f(ggml::q4_0());
    case element_type::q4_1: return f(ggml::q4_1());
    case element_type::q5_0: return f(ggml::q5_0());
    case element_type::q5_1: return f(ggml::q5_1());
    case element_type::q8_0: return f(ggml::q8_0());
    case element_type::q2_k: return f(ggml::q2_k());
    case element_type::q3_k: return f(ggml::q3_k());
    case element_type::q4_k: return f(ggml::q4_k());
    case element_type::q5_k: return f(ggml::q5_k());
    case element_type::q6_k: return f(ggml::q6_k());
    case element_type::iq4_nl: return f(ggml::iq4_nl());
    case element_type::iq4_xs: return f(ggml::iq4_xs());
    case element_type::iq3_xxs: return f(ggml::iq3_xxs());
    case element_type::iq3_s: return f(ggml::iq3_s());
    case element_type::iq2_xxs: return f(ggml::iq2_xxs());
    case element_type::iq2_xs: return f(ggml::iq2_xs());
    case element_type::iq2_s: return f(ggml::iq2_s());
    case element_type::iq1_s: return f(ggml::iq1_s());
    case element_type::iq1_m: return f(ggml::iq1_m());
    case element_type::tq1_0: return f(ggml::tq1_0());
    case element_type::tq2_0: return f(ggml::tq2_0());
    case element_type::nvfp4: return f(ggml::nvfp4());
    default: return f(ggml::mxfp4());
  }
}

FMOE_INLINE void decode_blocks(element_type type, const std::byte* blocks, extent count,
                               float* to) {
  with_blocks(type, [&]<class Format>(Format) {
    constexpr extent size = block_of(Format::type), bytes = bits_of(Format::type) / 8,
                     part = Format::part, parts = size / part;
    // A processor reads wide what was written narrow only after a while: some blocks are read
    // first.
    constexpr extent some = 256 / size;
    std::int8_t integers[some * size];
    float scales[some * parts], offsets[some * parts];
    auto from = reinterpret_cast<const std::uint8_t*>(blocks);
    for (extent done = 0, n = 0; done < count; done += n) {
      n = std::min(some, count - done);
      for (extent i = 0; i < n; ++i, from += bytes)
        Format::read(from, integers + size * i, scales + parts * i, offsets + parts * i);
      for (extent p = 0; p < n * parts; ++p, to += part)
        FMOE_ROUNDS(1)  // and several at once, in vectors
      for (extent i = 0; i < part; ++i) {
        const float product = static_cast<float>(integers[part * p + i]) * scales[p];
        if constexpr (Format::has_offsets) to[i] = product + offsets[p];
        else to[i] = product;
      }
    }
  });
}

FMOE_INLINE float decode_integers(element_type type, const std::byte* b, std::int8_t* to) {
  float scale = 0;
  with_blocks(type, [&]<class Format>(Format) {
    if constexpr (block_of(Format::type) == 32 && !Format::has_offsets)
      Format::read(reinterpret_cast<const std::uint8_t*>(b), to, &scale, nullptr);
  });
  return scale;
}

// Returns a scale of this matrix, or half of it, which is what meets twice the numbers of E2M1.
inline float scale_at(const element_scales& s, extent block, extent matrix, bool is_half) {
  const std::byte* const b = s.bytes.data() + block * bits_of(s.type) / 8;
  const auto half_of = [&](float scale) { return is_half ? 0.5f * scale : scale; };
  const float scale = [&] {
    switch (s.type) {
      case element_type::f64: return half_of(static_cast<float>(load_little<double>(b)));
      case element_type::f32: return half_of(load_little<float>(b));
      case element_type::f16: return half_of(static_cast<float>(load_little<f16>(b)));
      case element_type::bf16: return half_of(static_cast<float>(load_little<bf16>(b)));
      case element_type::f8_e4m3: return half_of(from_e4m3(std::to_integer<std::uint8_t>(*b)));
      default: {
        const float half = half_of_e8m0(std::to_integer<std::uint8_t>(*b));
        return is_half ? half : 2 * half;
      }
    }
  }();
  if (s.whole.empty()) return scale;
  return s.is_divided ? scale / s.whole[matrix] : scale * s.whole[matrix];
}

// Returns the code of 0 in the block of this number, which is `column` in its row of the matrix.
inline int zero_at(element_type type, const element_scales& s, extent block, extent row,
                   extent matrix, extent column) {
  if (s.zeros.empty()) return type == element_type::i4 ? 8 : 0;
  if (type == element_type::i8) return load_little<std::int8_t>(s.zeros.data() + block);
  const extent across = divide_up(s.columns, s.block_columns);
  const extent word = (matrix * divide_up(s.rows, 8) + row / 8) * across + column;
  return static_cast<int>(
      std::to_integer<unsigned>(s.zeros[4 * word + row % 8 / 2]) >> 4 * (row % 2) & 15u);
}

// Calls run(done, n, scale, zero) for elements done to done + n - 1 of `count`, which share a
// scale.
template <class Run>
void for_blocks(element_type type, const element_scales& s, extent first, extent count,
                const Run& run) {
  const extent across = divide_up(s.columns, s.block_columns),
               down = divide_up(s.rows, s.block_rows);
  for (extent done = 0; done < count;) {
    const extent row = (first + done) / s.columns % s.rows, column = (first + done) % s.columns,
                 matrix = (first + done) / s.columns / s.rows;
    const extent first_block = (matrix * down + row / s.block_rows) * across;
    const extent end = std::min(s.columns, column + count - done);
    extent at = column;
    for (extent block = column / s.block_columns; at < end; ++block) {
      const extent n = std::min(end, (block + 1) * s.block_columns) - at;
      run(done, n, scale_at(s, first_block + block, matrix, type == element_type::f4),
          zero_at(type, s, first_block + block, row, matrix, block));
      at += n;
      done += n;
    }
  }
}

// Returns the code of element i, two of which share a byte.
inline unsigned code_of_four_bits(const std::byte* codes, extent i) {
  return std::to_integer<unsigned>(codes[i / 2]) >> 4 * (i % 2) & 15u;
}

FMOE_INLINE void decode_scaled(element_type type, const std::byte* codes,
                               const element_scales& scales, extent first, extent count,
                               float* to) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(codes);
  const auto each = [&](const auto& number) {
    for_blocks(type, scales, first, count, [&](extent done, extent n, float scale, int zero) {
      for (extent i = done; i < done + n; ++i) to[i] = number(i, zero) * scale;
    });
  };
  switch (type) {
    case element_type::f8_e4m3: return each([&](extent i, int) { return from_e4m3(bytes[i]); });
    case element_type::i8:
      return each([&](extent i, int zero) {
        return static_cast<float>(static_cast<std::int8_t>(bytes[i]) - zero);
      });
    case element_type::i4:
      return each([&](extent i, int zero) {
        return static_cast<float>(static_cast<int>(code_of_four_bits(codes, i)) - zero);
      });
    default: return each([&](extent i, int) { return twice_e2m1(code_of_four_bits(codes, i)); });
  }
}

FMOE_INLINE void multiply_by_scales(const element_scales& scales, extent first, extent count,
                                    float* floats) {
  for_blocks(element_type::f32, scales, first, count, [&](extent done, extent n, float scale, int) {
    for (extent i = done; i < done + n; ++i) floats[i] *= scale;
  });
}

FMOE_INLINE float decode_integers(element_type type, const std::byte* codes,
                                  const element_scales& scales, extent first, std::int8_t* to) {
  float scale = 0;
  for_blocks(type, scales, first, 32, [&](extent, extent, float s, int zero) {
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned code = code_of_four_bits(codes, i);
      to[i] = static_cast<std::int8_t>(type == element_type::f4 ? static_cast<int>(twice_e2m1(code))
                                                                : static_cast<int>(code) - zero);
    }
    scale = s;
  });
  return scale;
}

}  // namespace fmoe::io
