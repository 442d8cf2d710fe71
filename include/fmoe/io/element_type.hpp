// SPDX-License-Identifier: MIT
// The element types that files hold (the 22 of safetensors, some of which .npy has) and the bounds
// of their shapes.
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
};

struct element_type_info {
  std::string_view name;  // in a safetensors header
  extent bits;
};

inline constexpr element_type_info element_types[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64}};

constexpr std::string_view name_of(element_type t) {
  return element_types[static_cast<int>(t)].name;
}
constexpr extent bits_of(element_type t) { return element_types[static_cast<int>(t)].bits; }

constexpr std::optional<element_type> element_type_named(std::string_view name) {
  std::uint8_t i = 0;
  for (const auto& info : element_types) {
    if (info.name == name) return static_cast<element_type>(i);
    ++i;
  }
  return std::nullopt;
}

// Returns the type in which tensors store these elements without loss, if there is one.
constexpr std::optional<dtype> dtype_of_elements(element_type t) {
  switch (t) {
    case element_type::f64: return dtype::float64;
    case element_type::f32: return dtype::float32;
    case element_type::bf16: return dtype::bfloat16;
    case element_type::f16: return dtype::float16;
    default: return std::nullopt;
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

}  // namespace fmoe::io
