// SPDX-License-Identifier: MIT
// The types that tensors store: float, double, the 16-bit types bf16 and f16, and weights of 8
// bits. Those of 16 and 8 bits exist only in memory; fmoe computes with their values as floats.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <fmoe/base/checked.hpp>

namespace fmoe {

// The upper 16 bits of a float.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  // Rounds to nearest, ties to even; overflows to infinity; a NaN stays a quiet NaN.
  explicit bf16(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(is_nan ? (u >> 16) | 0x40u
                                             : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
  }

  explicit constexpr operator float() const {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
  bool operator==(const bf16&) const = default;  // compares bits
};

// IEEE 754 binary16.
struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  // Rounds to nearest, ties to even; keeps subnormals; overflows to infinity; a NaN stays a quiet
  // NaN.
  explicit f16(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    std::uint32_t h = 0;
    if (magnitude > 0x7f800000u) {
      h = 0x7e00u | (magnitude >> 13 & 0x1ffu);
    } else if (magnitude >= 0x477ff000u) {  // 65520 and above
      h = 0x7c00u;
    } else if (magnitude >= 0x38800000u) {  // normal: 2^-14 and above
      h = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    } else if (magnitude >= 0x33000000u) {  // subnormal: 2^-25 and above
      const std::uint32_t shift = 126u - (magnitude >> 23), m = (magnitude & 0x7fffffu) | 0x800000u;
      const std::uint32_t half = 1u << (shift - 1), rest = m & ((half << 1) - 1);
      h = m >> shift;
      h += rest > half || (rest == half && (h & 1u));
    }
    bits = static_cast<std::uint16_t>(sign | h);
  }

  explicit constexpr operator float() const {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u)
      return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
  }
  bool operator==(const f16&) const = default;  // compares bits
};

// Weights of 8 bits: an integer from -127 to 127 for each weight, and a scale for each block of 32
// weights along one axis, or for the whole axis. A weight is their product, rounded to float. These
// types only name the formats; arrays/quantized.hpp has the tensors.
struct q8 {
  using scale = f16;
  static constexpr std::size_t block = 32;
};
struct q8c {
  using scale = float;
  static constexpr std::size_t block = all;
};

// The same types as values of an enum.
enum class dtype : std::uint8_t { float64, float32, bfloat16, float16, q8, q8c };

constexpr const char* name_of(dtype d) {
  switch (d) {
    case dtype::float64: return "float64";
    case dtype::float32: return "float32";
    case dtype::bfloat16: return "bfloat16";
    case dtype::float16: return "float16";
    case dtype::q8: return "q8";
    case dtype::q8c: break;
  }
  return "q8c";
}

}  // namespace fmoe

namespace fmoe::detail {

template <class T>
inline constexpr bool is_storable = std::is_same_v<T, double> || std::is_same_v<T, float> ||
                                    std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

template <class T>
inline constexpr bool is_quantized = std::is_same_v<T, q8> || std::is_same_v<T, q8c>;

template <class T>
  requires is_storable<T> || is_quantized<T>
inline constexpr dtype dtype_of = std::is_same_v<T, double>  ? dtype::float64
                                  : std::is_same_v<T, float> ? dtype::float32
                                  : std::is_same_v<T, bf16>  ? dtype::bfloat16
                                  : std::is_same_v<T, f16>   ? dtype::float16
                                  : std::is_same_v<T, q8>    ? dtype::q8
                                                             : dtype::q8c;

// A set of types, with a bit for each.
using type_set = unsigned;
inline constexpr extent dtypes = 6;
inline constexpr type_set all_types = (1u << dtypes) - 1;
template <class T>
inline constexpr type_set type_bit = 1u << static_cast<unsigned>(dtype_of<T>);

// The type in which operands of these types are computed: double if one of them is double, else
// float.
template <class... Ts>
using arithmetic_t = std::conditional_t<(std::is_same_v<Ts, double> || ...), double, float>;

// The type of weights stored as T once they are widened.
template <class T>
using widened_t = std::conditional_t<is_quantized<T>, float, T>;

template <class To, class From>
constexpr To convert(From x) {
  if constexpr (std::is_same_v<To, From>) return x;
  else if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<To>)
    return static_cast<To>(x);
  else return static_cast<To>(static_cast<float>(x));
}

constexpr bool is_quantized_type(dtype d) { return d == dtype::q8 || d == dtype::q8c; }

// Calls f with a null pointer to the C++ type of `d`, which is not one of 8 bits.
template <class F>
constexpr decltype(auto) with_type(dtype d, F&& f) {
  switch (d) {
    case dtype::float64: return f(static_cast<double*>(nullptr));
    case dtype::float32: return f(static_cast<float*>(nullptr));
    case dtype::bfloat16: return f(static_cast<bf16*>(nullptr));
    default: break;
  }
  return f(static_cast<f16*>(nullptr));
}

// The same for one of 8 bits.
template <class F>
constexpr decltype(auto) with_quantized_type(dtype d, F&& f) {
  return d == dtype::q8 ? f(static_cast<q8*>(nullptr)) : f(static_cast<q8c*>(nullptr));
}

// Returns the bytes of an element; the scales of weights of 8 bits are beside them.
constexpr extent size_of(dtype d) {
  if (is_quantized_type(d)) return 1;
  return with_type(d, [](auto* element) { return sizeof(*element); });
}

}  // namespace fmoe::detail
