// SPDX-License-Identifier: MIT
// The numbers of weights in 8 bits and fewer: ggml's blocks of 32 or 256 neighbours (ggml-quants.c
// and its specification of GGUF), FP8 E4M3 (Micikevicius et al. 2022), and E2M1 with scales E8M0
// (Open Compute Project, Microscaling Formats 1.0). Every number is the float that the format
// defines, in whatever order and on whatever machine it is decoded.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/element_type.hpp>

namespace fmoe::io {

// Returns 2^(code - 128) for each code, whose exponent counts half of what E8M0 says: the numbers
// that are multiplied with it are twice those of E2M1, which makes them integers.
constexpr float half_of_e8m0(std::uint8_t code) {
  const std::uint32_t bits = code < 2 ? 0x200000u << code : (code - 1u) << 23;
  return std::bit_cast<float>(bits);
}

// Returns twice the number of the low four bits, an integer from -12 to 12.
constexpr float twice_e2m1(std::uint32_t code) {
  const std::uint32_t magnitude = code & 7u;
  const float below_one = static_cast<float>(magnitude);
  const float from_one = std::bit_cast<float>((magnitude << 22) + (127u << 23));
  const float twice = magnitude < 2 ? below_one : from_one;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(twice) | (code & 8u) << 28);
}

// Returns the number of an FP8 E4M3 code as PyTorch's float8_e4m3fn has it: no infinities, and NaN
// for 0x7f and 0xff.
constexpr float from_e4m3(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fu, sign = (code & 0x80u) << 24;
  const float subnormal = static_cast<float>(magnitude) * 0x1p-9f;
  std::uint32_t bits =
      magnitude < 8 ? std::bit_cast<std::uint32_t>(subnormal) : (magnitude << 20) + (120u << 23);
  bits = magnitude == 0x7f ? 0x7fc00000u : bits;
  return std::bit_cast<float>(bits | sign);
}

// Writes the numbers of `count` blocks of ggml that lie one after the other, block_of(type) each.
// dtype_of_elements must know the type.
void decode_blocks(element_type type, const std::byte* blocks, extent count, float* to);

// True for blocks of 32 weights that are integers of at most 8 bits times one scale.
constexpr bool is_integers_and_scale(element_type type) {
  return type == element_type::q8_0 || type == element_type::q5_0 || type == element_type::q4_0 ||
         type == element_type::mxfp4 || type == element_type::iq4_nl;
}

// Writes the integers of such a block and returns its scale.
float decode_integers(element_type type, const std::byte* block, std::int8_t* to);

// Scales beside elements. They divide matrices of [rows, columns] into blocks of [block_rows,
// block_columns], of which the last ones may be smaller.
struct element_scales {
  element_type type;  // F64, F32, F16, BF16, F8_E4M3 or F8_E8M0; U8 counts as F8_E8M0
  std::span<const std::byte> bytes;
  extent rows, columns, block_rows, block_columns;
  // A number for each matrix, with which its scales are multiplied, or by which they are divided.
  // If there is none, the scales are what they are.
  std::span<const float> whole = {};
  bool is_divided = false;
  // The codes of 0: of I8 one for each scale, and of I4 in blocks of one row four bits in words
  // that hold it for eight rows. If there are none, it is 0 of I8 and 8 of I4.
  std::span<const std::byte> zeros = {};
};

// Writes the products of `count` elements and their scales. The elements are F8_E4M3, I8, or F4 and
// I4, of which two share a byte and the first has its low four bits. `codes` begin with the first
// of them, which is number `first` of all matrices.
void decode_scaled(element_type type, const std::byte* codes, const element_scales& scales,
                   extent first, extent count, float* to);

// Multiplies floats with their scales in place.
void multiply_by_scales(const element_scales& scales, extent first, extent count, float* floats);

// Writes the integers of 32 elements F4 or I4 that share a scale, and returns the scale.
float decode_integers(element_type type, const std::byte* codes, const element_scales& scales,
                      extent first, std::int8_t* to);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/block_formats-inl.hpp>
#endif
