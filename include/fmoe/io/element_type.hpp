// SPDX-License-Identifier: MIT
// The element types that files hold (the 22 of safetensors, some of which .npy has, integers of
// four bits that it has in words, and the blocks of ggml, which GGUF files have) and the bounds of
// their shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/dtype.hpp>

namespace fmoe::io {

inline constexpr extent max_file_rank = 32;
inline constexpr extent max_extent = (extent{1} << 48) - 1;

enum class element_type : std::uint8_t {
  boolean,  // one byte with any value
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
  i4,  // two a byte, the low four bits first, each as the integer plus 8
  // Blocks of ggml: some neighbours of a row, whose bits share scales.
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q8_1,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  q8_k,
  iq2_xxs,
  iq2_xs,
  iq3_xxs,
  iq1_s,
  iq4_nl,
  iq3_s,
  iq2_s,
  iq4_xs,
  iq1_m,
  tq1_0,
  tq2_0,
  mxfp4,
  nvfp4,
  q1_0,
};

struct element_type_info {
  std::string_view name;  // in a safetensors header, or ggml's
  extent bits;            // of an element, or of a block
  extent block = 1;       // elements of a block
};

inline constexpr element_type_info element_types[] = {{"BOOL", 8},
                                                      {"F4", 4},
                                                      {"F6_E2M3", 6},
                                                      {"F6_E3M2", 6},
                                                      {"U8", 8},
                                                      {"I8", 8},
                                                      {"F8_E5M2", 8},
                                                      {"F8_E4M3", 8},
                                                      {"F8_E8M0", 8},
                                                      {"F8_E4M3FNUZ", 8},
                                                      {"F8_E5M2FNUZ", 8},
                                                      {"I16", 16},
                                                      {"U16", 16},
                                                      {"F16", 16},
                                                      {"BF16", 16},
                                                      {"I32", 32},
                                                      {"U32", 32},
                                                      {"F32", 32},
                                                      {"C64", 64},
                                                      {"F64", 64},
                                                      {"I64", 64},
                                                      {"U64", 64},
                                                      {"I4", 4},
                                                      {"Q4_0", 8 * 18, 32},
                                                      {"Q4_1", 8 * 20, 32},
                                                      {"Q5_0", 8 * 22, 32},
                                                      {"Q5_1", 8 * 24, 32},
                                                      {"Q8_0", 8 * 34, 32},
                                                      {"Q8_1", 8 * 40, 32},
                                                      {"Q2_K", 8 * 84, 256},
                                                      {"Q3_K", 8 * 110, 256},
                                                      {"Q4_K", 8 * 144, 256},
                                                      {"Q5_K", 8 * 176, 256},
                                                      {"Q6_K", 8 * 210, 256},
                                                      {"Q8_K", 8 * 292, 256},
                                                      {"IQ2_XXS", 8 * 66, 256},
                                                      {"IQ2_XS", 8 * 74, 256},
                                                      {"IQ3_XXS", 8 * 98, 256},
                                                      {"IQ1_S", 8 * 50, 256},
                                                      {"IQ4_NL", 8 * 18, 32},
                                                      {"IQ3_S", 8 * 110, 256},
                                                      {"IQ2_S", 8 * 82, 256},
                                                      {"IQ4_XS", 8 * 136, 256},
                                                      {"IQ1_M", 8 * 56, 256},
                                                      {"TQ1_0", 8 * 54, 256},
                                                      {"TQ2_0", 8 * 66, 256},
                                                      {"MXFP4", 8 * 17, 32},
                                                      {"NVFP4", 8 * 36, 64},
                                                      {"Q1_0", 8 * 18, 128}};
inline constexpr std::size_t safetensors_types = 22;  // the first of these

constexpr std::string_view name_of(element_type t) {
  return element_types[static_cast<int>(t)].name;
}
constexpr extent bits_of(element_type t) { return element_types[static_cast<int>(t)].bits; }
constexpr extent block_of(element_type t) { return element_types[static_cast<int>(t)].block; }

// Returns the type of this name in a safetensors header.
constexpr std::optional<element_type> element_type_named(std::string_view name) {
  for (std::uint8_t i = 0; i < safetensors_types; ++i)
    if (element_types[i].name == name) return static_cast<element_type>(i);
  return std::nullopt;
}

// Returns the type in which tensors store these elements without loss, if there is one. Blocks of
// ggml are defined by the floats that they stand for.
constexpr std::optional<dtype> dtype_of_elements(element_type t) {
  switch (t) {
    case element_type::f64: return dtype::float64;
    case element_type::f32: return dtype::float32;
    case element_type::bf16: return dtype::bfloat16;
    case element_type::f16: return dtype::float16;
    case element_type::q8_1:
    case element_type::q8_k:
    case element_type::q1_0: return std::nullopt;
    default:
      if (t >= element_type::q4_0) return dtype::float32;
      return std::nullopt;
  }
}

// The reverse.
constexpr element_type element_type_of(dtype type) {
  switch (type) {
    case dtype::float64: return element_type::f64;
    case dtype::float32: return element_type::f32;
    case dtype::bfloat16: return element_type::bf16;
    default: return element_type::f16;
  }
}

// True if every value of `from` is a value of `to`.
constexpr bool is_widening(dtype from, dtype to) {
  const bool from_fewer_bits = to == dtype::float32 && size_of(from) < sizeof(float);
  return from == to || to == dtype::float64 || from_fewer_bits;
}

// Returns the number of bits that a tensor takes, or nullopt if it does not fit 64 bits, even if
// another extent is zero.
constexpr std::optional<extent> count_bits(std::span<const extent> shape, extent bits_each) {
  bool empty = false;
  for (const extent n : shape) {
    empty |= n == 0;
    if (n != 0 && !multiply(bits_each, n, bits_each)) return std::nullopt;
  }
  return empty ? 0 : bits_each;
}

// The same for elements of this type. A block counts whole if the elements do not fill it.
constexpr std::optional<extent> count_bits(std::span<const extent> shape, element_type type) {
  if (block_of(type) == 1) return count_bits(shape, bits_of(type));
  const auto elements = count_bits(shape, 1);
  extent bits = 0;
  if (!elements || !multiply(divide_up(*elements, block_of(type)), bits_of(type), bits))
    return std::nullopt;
  return bits;
}

}  // namespace fmoe::io
