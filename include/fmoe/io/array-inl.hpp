// SPDX-License-Identifier: MIT
// The elements of arrays, and their conversion to other types.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <utility>

#include <fmoe/io/array.hpp>

namespace fmoe::io {

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
  const auto bits = count_bits(shape_, type_);
  if (!bits)
    fail(errc::overflow, "has the shape " + text_of(shape_) + ", whose size does not fit 64 bits");
  const bool is_whole = *bits % 8 == 0 && element_count(shape_) % block_of(type_) == 0;
  if (!is_whole || *bits / 8 != bytes_.size())
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

FMOE_INLINE array array::reshaped(std::vector<extent> shape, element_type type) const {
  array result = reshaped(std::move(shape));
  result.type_ = type;
  return result;
}

FMOE_INLINE array array::rows(extent first, extent count) const {
  if (shape_.empty() || first > shape_[0] || count > shape_[0] - first)
    fail(errc::shape, "is " + text_of(shape_) + " and has no rows " + std::to_string(first) +
                          " to " + std::to_string(first + count));
  array result = *this;
  result.shape_[0] = count;
  if (is_outline_) return result;
  const extent each = element_count(std::span(shape_).subspan(1)), bits = bits_of(type_);
  const extent begin = first * each, elements = count * each, block = block_of(type_);
  if (begin % block != 0 || elements % block != 0 || begin / block * bits % 8 != 0 ||
      elements / block * bits % 8 != 0)
    fail(errc::shape, "is " + text_of(shape_) + ", whose rows " + std::to_string(first) + " to " +
                          std::to_string(first + count) + " cut a block of " +
                          std::string(name_of(type_)));
  result.bytes_ = bytes_.subspan(begin / block * bits / 8, elements / block * bits / 8);
  result.first_ += begin;
  return result;
}

struct array::scales_beside {
  element_scales scales;
  std::vector<float> whole;
  std::shared_ptr<const void> owner, owner_of_zeros;
};

FMOE_INLINE array array::scaled(const array& scales, extent block_rows, extent block_columns,
                                const scales_of_scales& more) const {
  const auto is_one_of = [](element_type type, std::initializer_list<element_type> types) {
    return std::ranges::count(types, type) != 0;
  };
  using enum element_type;
  const bool are_floats = is_one_of(scales.type_, {f64, f32, f16, bf16}),
             are_powers = is_one_of(scales.type_, {f8_e8m0, u8});
  const bool is_known =
      block_of(type_) > 1 || is_one_of(type_, {i8, i4})
          ? are_floats
          : (type_ == f8_e4m3 && (are_floats || are_powers)) ||
                (type_ == f4 && (are_floats || are_powers || scales.type_ == f8_e4m3));
  if (!is_known)
    fail(errc::dtype, "is " + std::string(name_of(type_)) + " with scales " +
                          std::string(name_of(scales.type_)) +
                          ": F8_E4M3, F4, I8, I4 or blocks of ggml with scales of floating-point "
                          "numbers are expected, or F8_E4M3 or F4 with F8_E8M0 or U8, or F4 with "
                          "F8_E4M3");
  std::vector<extent> blocks = shape_;
  const extent rank = shape_.size();
  const extent columns = rank == 0 ? 1 : shape_[rank - 1], rows = rank < 2 ? 1 : shape_[rank - 2];
  if (rank > 0) blocks[rank - 1] = divide_up(columns, block_columns);
  if (rank > 1) blocks[rank - 2] = divide_up(rows, block_rows);
  scales.check_shape(blocks);
  const auto beside = std::make_shared<scales_beside>(
      scales_beside{{scales.type_, scales.bytes_, rows, columns, block_rows, block_columns},
                    {},
                    scales.owner_,
                    nullptr});
  if (more.whole != nullptr) {
    const extent matrices = rank < 3 ? 1 : element_count(std::span(shape_).first(rank - 2)),
                 numbers = element_count(more.whole->shape_);
    if (numbers != 1 && numbers != matrices)
      more.whole->fail(errc::shape, "is " + text_of(more.whole->shape_) +
                                        " and one number, or one for each matrix, is expected");
    const any_tensor floats =
        more.whole->elements_as(dtype::float32, more.whole->shape_, narrowing::allow);
    if (!more.whole->is_outline_ && numbers != 0) {
      const auto* const first = static_cast<const float*>(floats.elements->data());
      beside->whole.assign(matrices, *first);
      if (numbers == matrices) beside->whole.assign(first, first + matrices);
    }
    beside->scales.whole = beside->whole;
    beside->scales.is_divided = more.is_divided;
  }
  if (more.zeros != nullptr) {
    const bool are_packed = type_ == i4 && block_rows == 1 && more.zeros->type_ == i32;
    if (!are_packed && (type_ != i8 || more.zeros->type_ != i8))
      more.zeros->fail(errc::dtype,
                       "is " + std::string(name_of(more.zeros->type_)) + ", the codes of 0 of " +
                           std::string(name_of(type_)) +
                           ": I8 of I8, and I32 of I4 in blocks of one row, are expected");
    if (are_packed && rank > 1) blocks[rank - 2] = divide_up(rows, 8);
    more.zeros->check_shape(blocks);
    beside->scales.zeros = more.zeros->bytes_;
    beside->owner_of_zeros = more.zeros->owner_;
  }
  array result = *this;
  result.scales_ = beside;
  return result;
}

FMOE_INLINE bool array::has_integers_and_scales() const {
  if (!is_scaled()) return is_integers_and_scale(type_);
  const element_scales& s = scales_->scales;
  const bool has_four_bits = type_ == element_type::f4 || type_ == element_type::i4;
  return has_four_bits && s.columns % 32 == 0 &&
         (s.block_columns % 32 == 0 || s.block_columns >= s.columns);
}

FMOE_INLINE float array::integers_at(extent first, std::int8_t* to) const {
  const std::byte* const codes = bytes_.data() + first / block_of(type_) * bits_of(type_) / 8;
  return is_scaled() ? decode_integers(type_, codes, scales_->scales, first_ + first, to)
                     : decode_integers(type_, codes, to);
}

// Writes `count` elements of a file.
template <class To>
void array::copy_numbers_to(To* to, extent count) const {
  const extent block = block_of(type_);
  const bool has_floats = is_scaled() || block > 1;
  if (!has_floats)
    return with_type(*dtype_of_elements(type_), [&]<class From>(From*) {
      for (extent i = 0; i < count; ++i)
        to[i] = round_to<To>(load_little<From>(bytes_.data() + i * sizeof(From)));
    });
  const auto decode = [&](extent first, extent n, float* floats) {
    const std::byte* const from = bytes_.data() + first / block * bits_of(type_) / 8;
    if (block == 1) return decode_scaled(type_, from, scales_->scales, first_ + first, n, floats);
    decode_blocks(type_, from, n / block, floats);
    if (is_scaled()) multiply_by_scales(scales_->scales, first_ + first, n, floats);
  };
  if constexpr (std::is_same_v<To, float>) return decode(0, count, to);
  std::vector<float> some(std::min<extent>(count, 4096));
  for (extent done = 0; done < count; done += some.size()) {
    const extent n = std::min(count - done, some.size());
    decode(done, n, some.data());
    for (extent i = 0; i < n; ++i) to[done + i] = round_to<To>(some[i]);
  }
}

FMOE_INLINE any_tensor array::elements_as(dtype type, std::span<const extent> expected,
                                          narrowing may) const {
  const auto stored = number_type();
  if (!stored) {
    const std::string type_name(name_of(type_));
    if (type_ == element_type::f8_e4m3)
      fail(errc::dtype, "is F8_E4M3, and its scales are expected beside it as " +
                            in_quotes(name_ + "_scale_inv") + " or " + in_quotes(name_ + "_scale"));
    if (type_ >= element_type::q4_0)
      fail(errc::dtype, "is " + type_name +
                            ", blocks that fmoe does not decode: F64, F32, BF16, F16 or another of "
                            "ggml's types is expected");
    fail(errc::dtype, "is " + type_name + " and F64, F32, BF16 or F16 is expected");
  }
  check_shape(expected);
  if (!count_bits(shape_, 8 * size_of(type)))
    fail(errc::overflow, "does not fit memory in the type " + std::string(fmoe::name_of(type)));
  if (may == narrowing::refuse && !is_widening(*stored, type))
    fail(errc::dtype, "is " + std::string(name_of(type_)) + ", which " + fmoe::name_of(type) +
                          " would round: pass fmoe::io::narrow to allow it");
  const extent count = is_outline_ ? 0 : element_count(shape_);
  any_tensor result{type, shape_, std::make_shared<storage>(count * size_of(type))};
  with_type(type, [&]<class To>(To*) {
    copy_numbers_to(static_cast<To*>(result.elements->data()), count);
  });
  return result;
}

FMOE_INLINE std::optional<any_tensor> array::elements_in_place(dtype type) const {
  const bool are_there = !is_outline_ && !is_scaled() && dtype_of_elements(type_) == type &&
                         block_of(type_) == 1 && owner_ != nullptr;
  const bool are_read =
      host_is_little_endian && reinterpret_cast<std::uintptr_t>(bytes_.data()) % size_of(type) == 0;
  if (!are_there || !are_read) return {};
  const void* const first = bytes_.data();
  return any_tensor{type, shape_, std::make_shared<storage>(first, bytes_.size(), owner_)};
}

FMOE_INLINE void array::fail(errc code, const std::string& text) const {
  throw error(code, text, 0, name_, file_ ? *file_ : std::filesystem::path());
}

}  // namespace fmoe::io
