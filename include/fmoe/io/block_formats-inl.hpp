// SPDX-License-Identifier: MIT
// The blocks of ggml, and elements with scales beside them. Every product here fits a float's 24
// bits, so that at most one addition rounds: a compiler may fuse the two or not.
#pragma once

#include <algorithm>

#include <fmoe/base/compiler.hpp>
#include <fmoe/base/dtype.hpp>
#include <fmoe/io/block_formats.hpp>
#include <fmoe/io/code_book_blocks.hpp>
#include <fmoe/io/ggml_blocks.hpp>
#include <fmoe/io/little_endian.hpp>

namespace fmoe::io {

inline unsigned code_at(const std::byte* b) { return std::to_integer<unsigned>(*b); }

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
