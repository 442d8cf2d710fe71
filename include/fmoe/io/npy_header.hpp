// SPDX-License-Identifier: MIT
// Checks and reads a .npy header: the text of a Python dict with the keys descr, fortran_order and
// shape. Nothing is evaluated; only literals that numpy itself writes are accepted.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/io/element_type.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/utf8.hpp>

namespace fmoe::io {

struct npy_header {
  element_type type{};
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<extent> shape;
};

struct npy_type {
  std::string_view name;
  element_type type;
};
inline constexpr npy_type npy_types[] = {
    {"b1", element_type::boolean}, {"i1", element_type::i8},  {"u1", element_type::u8},
    {"i2", element_type::i16},     {"u2", element_type::u16}, {"i4", element_type::i32},
    {"u4", element_type::u32},     {"i8", element_type::i64}, {"u8", element_type::u64},
    {"f2", element_type::f16},     {"f4", element_type::f32}, {"f8", element_type::f64}};

class npy_header_judge {
 public:
  // `at` is the position of the header in the file.
  npy_header_judge(std::string_view text, std::uint64_t at, const subject& in)
      : text_(text),
        at_(at),
        in_(in) {}

  npy_header judge() {
    skip_blanks();
    expect('{', "a dict");
    std::string_view descr;
    std::uint64_t descr_at = 0;
    bool has_descr = false, has_order = false, has_shape = false;
    while (!take('}')) {
      const auto key = string();
      expect(':', "a colon");
      if (key == "descr" && !has_descr) {
        has_descr = true;
        descr_at = at_ + next_;
        descr = string();
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        header_.fortran_order = truth();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        shape();
      } else {
        fail("one key descr, one key fortran_order and one key shape");
      }
      if (!take(',')) {
        expect('}', "a comma or a closing brace");
        break;
      }
    }
    if (next_ != text_.size()) fail("nothing behind the dict");
    const bool has_all = has_descr && has_order && has_shape;
    if (!has_all) fail("the keys descr, fortran_order and shape");
    set_type(descr, descr_at);
    if (fault_) throw *fault_;
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    in_.fail(errc::header, at_ + next_, "has a header without " + expected + " in this place");
  }

  void skip_blanks() {
    while (next_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[next_]) != std::string_view::npos)
      ++next_;
  }
  bool take(std::string_view token) {
    if (!text_.substr(next_).starts_with(token)) return false;
    next_ += token.size();
    skip_blanks();
    return true;
  }
  bool take(char c) { return take(std::string_view(&c, 1)); }
  void expect(char c, const char* what) {
    if (!take(c)) fail(what);
  }

  std::string_view string() {
    const char quote = next_ < text_.size() ? text_[next_] : '\0';
    if (quote != '\'' && quote != '"') fail("a string");
    const auto first = next_ + 1;
    for (next_ = first; next_ < text_.size() && text_[next_] != quote; ++next_)
      if (text_[next_] == '\\' || static_cast<unsigned char>(text_[next_]) < 0x20)
        fail("plain characters");
    const auto result = text_.substr(first, next_ - first);
    expect(quote, "a closing quote");
    return result;
  }

  bool truth() {
    if (take("True")) return true;
    if (!take("False")) fail("True or False");
    return false;
  }

  void shape() {
    expect('(', "a tuple");
    extent numbers = 0, commas = 0;
    while (!take(')')) {
      if (commas != numbers) fail("a comma or a closing parenthesis");
      number();
      ++numbers;
      commas += take(',');
    }
    if (numbers == 1 && commas == 0) fail("a tuple");  // (2) is a number
  }

  bool at_digit() const {
    return next_ < text_.size() && text_[next_] >= '0' && text_[next_] <= '9';
  }

  void number() {
    const auto first = next_;
    while (at_digit()) ++next_;
    const auto digits = text_.substr(first, next_ - first);
    const bool has_leading_zero = digits.size() > 1 && digits[0] == '0';
    if (digits.empty() || has_leading_zero) fail("an unsigned number");
    std::uint64_t value = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (parsed.ec != std::errc() || value > max_extent)
      defer(errc::overflow, first, "has an extent above 2^48-1");
    if (header_.shape.size() < max_file_rank) header_.shape.push_back(value);
    else defer(errc::limit, first, "has more than 32 axes");
    skip_blanks();
  }

  // Keeps the first such fault until the grammar of the whole header is checked, because faults of
  // grammar come first.
  void defer(errc code, std::size_t position, const char* text) {
    if (!fault_) fault_.emplace(code, text, at_ + position, std::string(), in_.file);
  }

  void set_type(std::string_view descr, std::uint64_t descr_at) {
    const auto found = std::find_if(
        std::begin(npy_types), std::end(npy_types),
        [&](const npy_type& t) { return descr.size() == 3 && descr.substr(1) == t.name; });
    const bool one_byte = found != std::end(npy_types) && bits_of(found->type) == 8;
    const bool ordered =
        !descr.empty() && (descr[0] == '<' || descr[0] == '>' || (descr[0] == '|' && one_byte));
    if (found == std::end(npy_types) || !ordered)
      in_.fail(errc::dtype, descr_at, "has the unsupported dtype " + in_quotes(descr));
    header_.type = found->type;
    header_.big_endian = descr[0] == '>';
  }

  std::string_view text_;
  std::uint64_t at_;
  const subject& in_;
  std::size_t next_ = 0;
  npy_header header_;
  std::optional<error> fault_;
};

}  // namespace fmoe::io
