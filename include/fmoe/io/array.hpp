// SPDX-License-Identifier: MIT
// An array as files hold it: an element type, a shape, and row-major little-endian bytes, which may
// belong to a file. Its elements may have scales beside them.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/arrays/any_tensor.hpp>
#include <fmoe/base/separate.hpp>
#include <fmoe/io/block_formats.hpp>
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

std::string text_of(std::span<const extent> shape);

class array;

// What there is beside scales: a floating-point number for each matrix or for all (`whole`), with
// which scales are multiplied, or by which they are divided; and the codes of 0, of I8 with the
// shape of the scales, and of I4 in blocks of one row I32 [.., ceil(rows / 8), blocks of a row],
// each word those of eight rows.
struct scales_of_scales {
  const array* whole = nullptr;
  bool is_divided = false;
  const array* zeros = nullptr;
};

// An array of a file, in the type that it has there.
class array {
 public:
  // The bytes stay valid as long as the owner lives. Throws size_mismatch or overflow unless their
  // number is that of the shape.
  array(element_type type, std::vector<extent> shape, std::span<const std::byte> bytes,
        std::shared_ptr<const void> owner, std::string name = {},
        std::shared_ptr<const std::filesystem::path> file = nullptr);

  // Makes an array with a type and a shape but without elements. Tensors from its get() have no
  // elements either: this is enough for a plan and its costs.
  static array outline(element_type type, std::vector<extent> shape, std::string name,
                       std::shared_ptr<const std::filesystem::path> file);
  array outlined() const { return outline(type_, shape_, name_, file_); }

  // These copy the bytes or values.
  array(element_type type, std::vector<extent> shape, std::span<const std::byte> bytes);
  template <integer I>
  array(std::vector<extent> shape, std::span<const I> values)
      : array(integer_type<I>(), std::move(shape), bytes_from(values)) {}

  // Shares the elements of the tensor (copies them on a big-endian host).
  template <class T, std::size_t Rank>
    requires is_storable<T>
  array(const tensor<T, Rank>& t) : array(any_of(t)) {}
  explicit array(const any_tensor& t);

  // Refuses expressions with a sentence.
  template <class E>
    requires(
        requires {
          typename E::scalar;
          E::rank;
        } && !requires(const E& e) { e.data(); })
  array(const E&) : array(element_type::f32, {0}, {}, nullptr) {
    static_assert(never<E>, "an expression has no elements; fmoe::evaluate(expression) has");
  }

  // Returns this array, of F8_E4M3, I8, F4 or I4, or of blocks of ggml, as the products of its
  // elements and these scales, which element_scales describes. The last two axes are divided into
  // blocks of this size, an array of one axis along it, and the scales have an entry for each
  // block. Throws dtype, and shape unless the scales have the number of blocks that each axis has.
  array scaled(const array& scales, extent block_rows, extent block_columns,
               const scales_of_scales& more = {}) const;

  element_type type() const { return type_; }
  const std::vector<extent>& shape() const { return shape_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  bool is_outline() const { return is_outline_; }
  // The same array, for bytes that nobody writes as long as the owner lives.
  array lasting() const {
    array result = *this;
    result.is_lasting_ = true;
    return result;
  }
  bool is_lasting() const { return is_lasting_; }
  bool is_scaled() const { return scales_ != nullptr; }
  // The type that holds the numbers without rounding, if they are floating-point numbers.
  std::optional<dtype> number_type() const {
    return is_scaled() ? dtype::float32 : dtype_of_elements(type_);
  }
  // True if all 32 neighbours, the last axis being innermost, are integers times a scale of their
  // own: Q8_0, Q5_0, Q4_0, IQ4_NL and MXFP4.
  bool has_integers_and_scales() const;
  // Writes the integers of the 32 weights that begin with number `first`, and returns their scale.
  float integers_at(extent first, std::int8_t* to) const;
  const std::string& name() const { return name_; }

  // Throws shape unless every extent is the expected one, or `any` is expected.
  void check_shape(std::span<const extent> expected) const;

  // Returns the same elements in another shape with as many elements.
  array reshaped(std::vector<extent> shape) const;
  // Returns the same bytes as elements of another type, in a shape that takes as many bytes.
  array reshaped(std::vector<extent> shape, element_type type) const;

  // Returns entries `first` to `first` + `count` - 1 of the first axis, which share the bytes: an
  // expert's part of a tensor of all experts. Throws shape if they do not exist or do not begin and
  // end between blocks.
  array rows(extent first, extent count) const;

  // Returns a tensor with memory of its own. Blocks of ggml and elements with scales become the
  // floats that they stand for. Throws dtype for anything else but floating-point numbers and for
  // narrowing that is not allowed, and shape as check_shape does.
  template <class T, std::size_t Rank>
  tensor<T, Rank> get(const std::array<extent, Rank>& expected,
                      narrowing may = narrowing::refuse) const {
    static_assert(
        is_storable<T>,
        "get: an array is of float, double, fmoe::bf16 or fmoe::f16; weights of 8 bits are "
        "loaded with their layer");
    return tensor_of<T, Rank>(elements_as(dtype_of<T>, expected, may));
  }
  template <class T, std::size_t Rank>
  tensor<T, Rank> get(narrowing may = narrowing::refuse) const {
    std::array<extent, Rank> expected{};
    expected.fill(all);
    return get<T, Rank>(expected, may);
  }

  template <class T, class... Arguments>
  tensor<T, 1> get(const Arguments&...) const {
    static_assert(never<T>, "get: say the number of axes, too, as in get<float, 2>()");
    return {};
  }

  // The same for a type and a rank that only the caller's data tell.
  any_tensor elements_as(dtype type, std::span<const extent> expected, narrowing may) const;

  // Returns the elements where they lie in the file or in memory, which the result holds, or
  // nothing if they are of another type, have scales or lie at an address that this host does not
  // read. Whoever writes them writes a copy.
  std::optional<any_tensor> elements_in_place(dtype type) const;

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
  struct scales_beside;

  [[noreturn]] void fail(errc code, const std::string& text) const;
  template <class To>
  void copy_numbers_to(To* to, extent count) const;

  template <class I>
  static constexpr element_type integer_type() {
    constexpr element_type with_sign[] = {element_type::i8, element_type::i16, element_type::i32,
                                          element_type::i64};
    constexpr element_type without[] = {element_type::u8, element_type::u16, element_type::u32,
                                        element_type::u64};
    constexpr extent width = std::bit_width(sizeof(I)) - 1;  // its logarithm, in bytes
    return std::is_signed_v<I> ? with_sign[width] : without[width];
  }

  template <class T>
  static std::vector<std::byte> bytes_from(std::span<const T> values) {
    std::vector<std::byte> bytes(values.size_bytes());
    for (extent i = 0; i < values.size(); ++i)
      store_little(values[i], bytes.data() + i * sizeof(T));
    return bytes;
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
  bool is_outline_ = false, is_lasting_ = false;
  std::shared_ptr<const scales_beside> scales_;
  extent first_ = 0;  // element, of all that have these scales
  std::shared_ptr<const void> owner_;
  std::string name_;
  std::shared_ptr<const std::filesystem::path> file_;
};

using arrays_by_name = std::map<std::string, array>;
using strings_by_name = std::map<std::string, std::string>;

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/array-inl.hpp>
#endif
