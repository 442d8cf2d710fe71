// SPDX-License-Identifier: MIT
// An array as files hold it: an element type, a shape, and row-major little-endian bytes, which may
// belong to a file.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/arrays/tensor.hpp>
#include <fmoe/io/element_type.hpp>
#include <fmoe/io/error.hpp>
#include <fmoe/io/little_endian.hpp>

namespace fmoe::io {

// Says whether values may be rounded to a type that cannot represent all of them.
enum class narrowing : bool { refuse, allow };
inline constexpr narrowing narrow = narrowing::allow;

template <class T>
concept integer = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                  !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                  !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

// True if every value of From is a value of To.
template <class From, class To>
inline constexpr bool is_widening = std::is_same_v<From, To> || std::is_same_v<To, double> ||
                                    (std::is_same_v<To, float> && sizeof(From) == 2);

inline std::string text_of(std::span<const extent> shape) {
  std::string text = "[";
  for (const extent n : shape)
    text.append(text.size() > 1 ? ", " : "").append(n == all ? "*" : std::to_string(n));
  return text + ']';
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

// An array of a file, in the type that it has there.
class array {
 public:
  // The bytes stay valid as long as the owner lives. Throws size_mismatch or overflow unless their
  // number is that of the shape.
  array(element_type type, std::vector<extent> shape, std::span<const std::byte> bytes,
        std::shared_ptr<const void> owner, std::string name = {},
        std::shared_ptr<const std::filesystem::path> file = nullptr)
      : type_(type),
        shape_(std::move(shape)),
        bytes_(bytes),
        owner_(std::move(owner)),
        name_(std::move(name)),
        file_(std::move(file)) {
    const auto bits = count_bits(shape_, bits_of(type_));
    if (!bits)
      fail(errc::overflow,
           "has the shape " + text_of(shape_) + ", whose size does not fit 64 bits");
    if (*bits % 8 != 0 || *bits / 8 != bytes_.size())
      fail(errc::size_mismatch, "has the shape " + text_of(shape_) + " and the type " +
                                    std::string(name_of(type_)) + ", but " +
                                    std::to_string(bytes_.size()) + " bytes");
  }

  // Makes an array with a type and a shape but without elements. Tensors from its get() have no
  // elements either: this is enough for a plan and its costs.
  static array outline(element_type type, std::vector<extent> shape, std::string name,
                       std::shared_ptr<const std::filesystem::path> file) {
    array result(type, {0}, {}, nullptr, std::move(name), std::move(file));
    result.shape_ = std::move(shape);
    result.is_outline_ = true;
    return result;
  }

  // These copy the bytes or values.
  array(element_type type, std::vector<extent> shape, std::span<const std::byte> bytes)
      : array(type, std::move(shape), bytes, nullptr) {
    auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    bytes_ = *copy;
    owner_ = std::move(copy);
  }
  template <integer I>
  array(std::vector<extent> shape, std::span<const I> values)
      : array(integer_type<I>(), std::move(shape), bytes_from(values)) {}

  // Shares the elements of the tensor (copies them on a big-endian host).
  template <class T, std::size_t Rank>
  array(const tensor<T, Rank>& t) : array(from(t)) {}

  element_type type() const { return type_; }
  const std::vector<extent>& shape() const { return shape_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  bool is_outline() const { return is_outline_; }
  const std::string& name() const { return name_; }

  // Throws shape unless every extent is the expected one, or `any` is expected.
  void check_shape(std::span<const extent> expected) const {
    const auto fits = [](extent found, extent wanted) { return wanted == all || found == wanted; };
    if (!std::equal(shape_.begin(), shape_.end(), expected.begin(), expected.end(), fits))
      fail(errc::shape, "is " + text_of(shape_) + " and " + text_of(expected) + " is expected");
  }

  // Returns the same elements in another shape with as many elements.
  array reshaped(std::vector<extent> shape) const {
    array result = *this;
    result.shape_ = std::move(shape);
    return result;
  }

  // Returns a tensor with memory of its own. Throws dtype for anything but floating-point numbers
  // and for narrowing that is not allowed, and shape as check_shape does.
  template <class T, std::size_t Rank>
  tensor<T, Rank> get(const std::array<extent, Rank>& expected,
                      narrowing may = narrowing::refuse) const {
    const auto stored = dtype_of_elements(type_);
    if (!stored)
      fail(errc::dtype,
           "is " + std::string(name_of(type_)) + " and F64, F32, BF16 or F16 is expected");
    check_shape(expected);
    if (!count_bits(shape_, 8 * sizeof(T)))
      fail(errc::overflow,
           "does not fit memory in the type " + std::string(fmoe::name_of(dtype_of<T>)));
    std::array<extent, Rank> shape{};
    std::copy_n(shape_.begin(), Rank, shape.begin());
    return with_type(*stored, [&]<class From>(From*) {
      if constexpr (!is_widening<From, T>)
        if (may == narrowing::refuse)
          fail(errc::dtype, "is " + std::string(name_of(type_)) + ", which " +
                                fmoe::name_of(dtype_of<T>) +
                                " would round: pass fmoe::io::narrow to allow it");
      if (is_outline_) return tensor<T, Rank>(shape, std::make_shared<storage>(extent{0}));
      tensor<T, Rank> result(shape);
      for (extent i = 0; i < result.size(); ++i)
        result.data()[i] = round_to<T>(load_little<From>(bytes_.data() + i * sizeof(From)));
      return result;
    });
  }
  template <class T, std::size_t Rank>
  tensor<T, Rank> get(narrowing may = narrowing::refuse) const {
    std::array<extent, Rank> expected{};
    expected.fill(all);
    return get<T, Rank>(expected, may);
  }

  // Returns the elements in row-major order. Throws dtype unless they are integers (BOOL counts as
  // bytes), and overflow if one does not fit I.
  template <integer I>
  std::vector<I> integers() const {
    switch (type_) {
      case element_type::i8: return integers_from<I, std::int8_t>();
      case element_type::boolean:
      case element_type::u8: return integers_from<I, std::uint8_t>();
      case element_type::i16: return integers_from<I, std::int16_t>();
      case element_type::u16: return integers_from<I, std::uint16_t>();
      case element_type::i32: return integers_from<I, std::int32_t>();
      case element_type::u32: return integers_from<I, std::uint32_t>();
      case element_type::i64: return integers_from<I, std::int64_t>();
      case element_type::u64: return integers_from<I, std::uint64_t>();
      default:
        fail(errc::dtype, "is " + std::string(name_of(type_)) + " and integers are expected");
    }
  }

 private:
  [[noreturn]] void fail(errc code, const std::string& text) const {
    throw error(code, text, 0, name_, file_ ? *file_ : std::filesystem::path());
  }

  template <class I>
  static constexpr element_type integer_type() {
    constexpr element_type with_sign[] = {element_type::i8, element_type::i16, element_type::i32,
                                          element_type::i64};
    constexpr element_type without[] = {element_type::u8, element_type::u16, element_type::u32,
                                        element_type::u64};
    return (std::is_signed_v<I> ? with_sign : without)[std::bit_width(sizeof(I)) - 1];
  }

  template <class T>
  static std::vector<std::byte> bytes_from(std::span<const T> values) {
    std::vector<std::byte> bytes(values.size_bytes());
    for (extent i = 0; i < values.size(); ++i)
      store_little(values[i], bytes.data() + i * sizeof(T));
    return bytes;
  }

  template <class T, std::size_t Rank>
  static array from(const tensor<T, Rank>& t) {
    const std::span<const T> values(t.data(), t.size());
    const std::vector<extent> shape(t.shape().begin(), t.shape().end());
    if constexpr (host_is_little_endian)
      return {element_type_of<T>, shape, std::as_bytes(values), t.shared_storage()};
    else return {element_type_of<T>, shape, bytes_from(values)};
  }

  template <class I, class From>
  std::vector<I> integers_from() const {
    std::vector<I> result(bytes_.size() / sizeof(From));
    for (extent i = 0; i < result.size(); ++i) {
      const auto value = load_little<From>(bytes_.data() + i * sizeof(From));
      if (!std::in_range<I>(value))
        fail(errc::overflow, "holds " + std::to_string(value) + ", which does not fit " +
                                 std::string(name_of(integer_type<I>())));
      result[i] = static_cast<I>(value);
    }
    return result;
  }

  element_type type_;
  std::vector<extent> shape_;
  std::span<const std::byte> bytes_;
  bool is_outline_ = false;
  std::shared_ptr<const void> owner_;
  std::string name_;
  std::shared_ptr<const std::filesystem::path> file_;
};

using arrays_by_name = std::map<std::string, array>;
using strings_by_name = std::map<std::string, std::string>;

}  // namespace fmoe::io
