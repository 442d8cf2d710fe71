// SPDX-License-Identifier: MIT
// The metadata of GGUF files: values of thirteen kinds, one of which is an array of the others.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmoe/io/array.hpp>
#include <fmoe/io/error.hpp>
#include <fmoe/io/little_endian.hpp>

namespace fmoe::io {

// The kinds of values, with ggml's numbers.
enum class gguf_type : std::uint8_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};

struct gguf_type_info {
  std::string_view name;
  extent bytes;  // of a value; 0 where values differ
};

inline constexpr gguf_type_info gguf_types[] = {
    {"UINT8", 1},  {"INT8", 1},    {"UINT16", 2}, {"INT16", 2},  {"UINT32", 4},
    {"INT32", 4},  {"FLOAT32", 4}, {"BOOL", 1},   {"STRING", 0}, {"ARRAY", 0},
    {"UINT64", 8}, {"INT64", 8},   {"FLOAT64", 8}};

constexpr std::string_view name_of(gguf_type t) { return gguf_types[static_cast<int>(t)].name; }
constexpr extent bytes_of(gguf_type t) { return gguf_types[static_cast<int>(t)].bytes; }

// One value of the metadata, or an array of values of one kind. It refers to the bytes of its file,
// which must outlive it.
class gguf_value {
 public:
  // Where in which file the value is.
  struct place {
    std::string key;
    std::shared_ptr<const std::filesystem::path> file;
    std::uint64_t at;
  };

  // `bytes` are `count` checked values of an array, or one value.
  gguf_value(place where, gguf_type type, bool is_array, extent count,
             std::span<const std::byte> bytes)
      : place_(std::move(where)),
        type_(type),
        is_array_(is_array),
        count_(count),
        bytes_(bytes) {}

  // The kind of the value, or of an array's values.
  gguf_type type() const { return type_; }
  bool is_array() const { return is_array_; }
  std::uint64_t at() const { return place_.at; }  // the byte of the file where its key stands
  extent size() const { return count_; }          // values of an array; 1 for others

  // Returns the value as a bool, an integer, a float, a double or a std::string, or an array as a
  // std::vector of these. Throws schema for a value of another kind (a double may come from a
  // float, and an integer from any integer) and overflow for an integer that does not fit T.
  //
  //   const auto file = io::gguf::read("model.gguf");
  //   const auto experts = file.value<std::size_t>("qwen3moe.expert_count");
  //   const auto tokens = file.value<std::vector<std::string>>("tokenizer.ggml.tokens");
  template <class T>
  T get() const {
    if constexpr (is_list<T>) {
      using element = typename T::value_type;
      if (!is_array_ || !holds<element>()) refuse(kind_of<element>(), true);
      T result;
      result.reserve(count_);
      const std::byte* from = bytes_.data();
      for (extent i = 0; i < count_; ++i) result.push_back(next<element>(from));
      return result;
    } else {
      if (is_array_ || !holds<T>()) refuse(kind_of<T>(), false);
      const std::byte* from = bytes_.data();
      return next<T>(from);
    }
  }

  // Returns the value as text. An array of up to 4096 numbers, such as one for each layer, is
  // "2,2"; there is none of longer arrays, and of arrays of strings.
  std::optional<std::string> text() const {
    constexpr extent longest = 4096;
    const extent bytes = bytes_of(type_);
    if (!is_array_) return text_of_one();
    if (bytes == 0 || count_ > longest) return {};
    std::string all;
    for (extent i = 0; i < count_; ++i)
      all.append(i == 0 ? "" : ",")
          .append(
              gguf_value(place_, type_, false, 1, bytes_.subspan(i * bytes, bytes)).text_of_one());
    return all;
  }

 private:
  std::string text_of_one() const {
    switch (type_) {
      case gguf_type::string: return get<std::string>();
      case gguf_type::boolean: return get<bool>() ? "true" : "false";
      case gguf_type::f32: return digits(get<float>());
      case gguf_type::f64: return digits(get<double>());
      case gguf_type::u64: return digits(get<std::uint64_t>());
      default: return digits(get<std::int64_t>());
    }
  }

  template <class T>
  static constexpr bool is_list =
      requires { typename T::value_type; } && !std::is_same_v<T, std::string>;

  template <class T>
  bool holds() const {
    static_assert(std::is_same_v<T, bool> || integer<T> || std::is_same_v<T, float> ||
                      std::is_same_v<T, double> || std::is_same_v<T, std::string>,
                  "gguf: a value is a bool, an integer, a float, a double or a std::string, or a "
                  "std::vector of these");
    const bool is_float = type_ == gguf_type::f32 || type_ == gguf_type::f64;
    if constexpr (std::is_same_v<T, bool>) return type_ == gguf_type::boolean;
    else if constexpr (std::is_same_v<T, float>) return type_ == gguf_type::f32;
    else if constexpr (std::is_same_v<T, double>) return is_float;
    else if constexpr (std::is_same_v<T, std::string>) return type_ == gguf_type::string;
    else return bytes_of(type_) != 0 && !is_float && type_ != gguf_type::boolean;
  }

  template <class T>
  static constexpr std::string_view kind_of() {
    return std::is_same_v<T, bool>          ? "BOOL"
           : std::is_same_v<T, float>       ? "FLOAT32"
           : std::is_same_v<T, double>      ? "FLOAT32 or FLOAT64"
           : std::is_same_v<T, std::string> ? "STRING"
                                            : "an integer";
  }

  // Reads a value and moves behind it.
  template <class T>
  T next(const std::byte*& from) const {
    if constexpr (std::is_same_v<T, std::string>) {
      const auto size = load_little<std::uint64_t>(from);
      const auto* const text = reinterpret_cast<const char*>(from + 8);
      from += 8 + size;
      return std::string(text, size);
    } else {
      const std::byte* const at = std::exchange(from, from + bytes_of(type_));
      if constexpr (std::is_same_v<T, bool>) return *at != std::byte{0};
      else if constexpr (std::is_same_v<T, float>) return load_little<float>(at);
      else if constexpr (std::is_same_v<T, double>)
        return type_ == gguf_type::f32 ? load_little<float>(at) : load_little<double>(at);
      else if constexpr (integer<T>) return integer_at<T>(at);
      else return T();  // holds() has refused it
    }
  }

  template <class I>
  I integer_at(const std::byte* at) const {
    switch (type_) {
      case gguf_type::u8: return fitting<I>(load_little<std::uint8_t>(at));
      case gguf_type::i8: return fitting<I>(load_little<std::int8_t>(at));
      case gguf_type::u16: return fitting<I>(load_little<std::uint16_t>(at));
      case gguf_type::i16: return fitting<I>(load_little<std::int16_t>(at));
      case gguf_type::u32: return fitting<I>(load_little<std::uint32_t>(at));
      case gguf_type::i32: return fitting<I>(load_little<std::int32_t>(at));
      case gguf_type::u64: return fitting<I>(load_little<std::uint64_t>(at));
      default: return fitting<I>(load_little<std::int64_t>(at));
    }
  }
  template <class I, class From>
  I fitting(From value) const {
    if (!std::in_range<I>(value))
      fail(errc::overflow, "is " + std::to_string(value) + ", which does not fit " +
                               std::to_string(8 * sizeof(I)) + " bits as asked for");
    return static_cast<I>(value);
  }

  template <class Number>
  static std::string digits(Number value) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
  }

  [[noreturn]] void refuse(std::string_view expected, bool array) const {
    const std::string found =
        std::string(is_array_ ? "an array of " : "") + std::string(name_of(type_));
    fail(errc::schema, "is " + found + ", and " + (array ? "an array of " : "") +
                           std::string(expected) + " is expected");
  }
  [[noreturn]] void fail(errc code, const std::string& why) const {
    throw error(code, "has the metadata " + in_quotes(place_.key) + ", which " + why, place_.at, {},
                *place_.file);
  }

  place place_;
  gguf_type type_;
  bool is_array_;
  extent count_;
  std::span<const std::byte> bytes_;
};

using gguf_values = std::map<std::string, gguf_value, std::less<>>;

}  // namespace fmoe::io
