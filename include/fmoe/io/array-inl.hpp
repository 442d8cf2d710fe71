// SPDX-License-Identifier: MIT
// The elements of arrays, and their conversion to other types.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <fmoe/io/array.hpp>

namespace fmoe::io {

// True if every value of `from` is a value of `to`.
constexpr bool is_widening(dtype from, dtype to) {
  const bool from_16_bits = to == dtype::float32 && size_of(from) == 2;
  return from == to || to == dtype::float64 || from_16_bits;
}

// Rounds once. A double is first rounded to odd as a float, which makes the second rounding exact.
template <class To, class From>
To round_to(From x) {
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2) {
    auto y = static_cast<float>(x);
    if (std::fabs(static_cast<double>(y)) > std::fabs(x))
      y = std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) - 1);
    if (static_cast<double>(y) != x) y = std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) | 1u);
    return static_cast<To>(y);
  } else {
    return convert<To>(x);
  }
}

// Returns the elements as they lie in memory.
inline std::span<const std::byte> bytes_of(const any_tensor& t) {
  if (t.empty()) return {};
  return {static_cast<const std::byte*>(t.elements->data()),
          element_count(t.shape) * size_of(t.type)};
}

FMOE_INLINE std::string text_of(std::span<const extent> shape) {
  std::string text = "[";
  for (const extent n : shape)
    text.append(text.size() > 1 ? ", " : "").append(n == all ? "*" : std::to_string(n));
  return text + ']';
}

FMOE_INLINE array::array(element_type type, std::vector<extent> shape,
                         std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                         std::string name, std::shared_ptr<const std::filesystem::path> file)
    : type_(type),
      shape_(std::move(shape)),
      bytes_(bytes),
      owner_(std::move(owner)),
      name_(std::move(name)),
      file_(std::move(file)) {
  const auto bits = count_bits(shape_, bits_of(type_));
  if (!bits)
    fail(errc::overflow, "has the shape " + text_of(shape_) + ", whose size does not fit 64 bits");
  if (*bits % 8 != 0 || *bits / 8 != bytes_.size())
    fail(errc::size_mismatch, "has the shape " + text_of(shape_) + " and the type " +
                                  std::string(name_of(type_)) + ", but " +
                                  std::to_string(bytes_.size()) + " bytes");
}

FMOE_INLINE array array::outline(element_type type, std::vector<extent> shape, std::string name,
                                 std::shared_ptr<const std::filesystem::path> file) {
  array result(type, {0}, {}, nullptr, std::move(name), std::move(file));
  result.shape_ = std::move(shape);
  result.is_outline_ = true;
  return result;
}

FMOE_INLINE array::array(element_type type, std::vector<extent> shape,
                         std::span<const std::byte> bytes)
    : array(type, std::move(shape), bytes, nullptr) {
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  bytes_ = *copy;
  owner_ = std::move(copy);
}

FMOE_INLINE array::array(const any_tensor& t)
    : array(element_type_of(t.type), t.shape, bytes_of(t), t.elements) {
  if constexpr (!host_is_little_endian) {
    auto little = std::make_shared<std::vector<std::byte>>(bytes_.size());
    copy_little(bytes_, size_of(t.type), little->data());
    bytes_ = *little;
    owner_ = std::move(little);
  }
}

FMOE_INLINE void array::check_shape(std::span<const extent> expected) const {
  const auto fits = [](extent found, extent wanted) { return wanted == all || found == wanted; };
  if (!std::equal(shape_.begin(), shape_.end(), expected.begin(), expected.end(), fits))
    fail(errc::shape, "is " + text_of(shape_) + " and " + text_of(expected) + " is expected");
}

FMOE_INLINE array array::reshaped(std::vector<extent> shape) const {
  array result = *this;
  result.shape_ = std::move(shape);
  return result;
}

FMOE_INLINE any_tensor array::elements_as(dtype type, std::span<const extent> expected,
                                          narrowing may) const {
  const auto stored = dtype_of_elements(type_);
  if (!stored)
    fail(errc::dtype,
         "is " + std::string(name_of(type_)) + " and F64, F32, BF16 or F16 is expected");
  check_shape(expected);
  if (!count_bits(shape_, 8 * size_of(type)))
    fail(errc::overflow, "does not fit memory in the type " + std::string(fmoe::name_of(type)));
  if (may == narrowing::refuse && !is_widening(*stored, type))
    fail(errc::dtype, "is " + std::string(name_of(type_)) + ", which " + fmoe::name_of(type) +
                          " would round: pass fmoe::io::narrow to allow it");
  const extent count = is_outline_ ? 0 : element_count(shape_);
  any_tensor result{type, shape_, std::make_shared<storage>(count * size_of(type))};
  with_type(*stored, [&]<class From>(From*) {
    with_type(type, [&]<class To>(To*) {
      To* const to = static_cast<To*>(result.elements->data());
      for (extent i = 0; i < count; ++i)
        to[i] = round_to<To>(load_little<From>(bytes_.data() + i * sizeof(From)));
    });
  });
  return result;
}

FMOE_INLINE void array::fail(errc code, const std::string& text) const {
  throw error(code, text, 0, name_, file_ ? *file_ : std::filesystem::path());
}

}  // namespace fmoe::io
