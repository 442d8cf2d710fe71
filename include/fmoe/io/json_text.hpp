// SPDX-License-Identifier: MIT
// Shows a safetensors header to the JSON lexer, and keeps the position in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include <fmoe/io/file.hpp>
#include <fmoe/io/json_string.hpp>
#include <fmoe/io/tensor_entry.hpp>

namespace fmoe::io {

constexpr bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
constexpr bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The lexer sees one blank of a run of blanks, two digits of a run of digits, and only the quotes
// of a string. This does not change the grammar, but the lexer buffers little, and no number is
// beyond its range. Names and numbers are judged by their full text. Faults inside strings and
// control characters throw here.
class json_text {
 public:
  json_text(std::string_view text, const subject& in) : text_(text), in_(in) { check_next(); }

  bool at_end() const { return next_ == text_.size(); }
  char current() const { return text_[next_]; }
  std::size_t last() const { return last_; }    // position of the last character shown
  std::size_t shown() const { return shown_; }  // number of characters shown

  void advance() {
    const char c = current();
    last_ = next_++;
    ++shown_;
    const bool follows_digit = next_ >= 2 && is_digit(text_[next_ - 2]);
    if (c == '"') {
      in_string_ = !in_string_;
      if (in_string_) next_ = closing_quote();
    } else if (is_blank(c)) {
      while (!at_end() && is_blank(current())) ++next_;
    } else if (is_digit(c) && follows_digit) {
      while (!at_end() && is_digit(current())) ++next_;
    }
    check_next();
  }

 private:
  [[noreturn]] void fail(std::size_t at, const char* what) const {
    in_.fail(errc::json, header_at + at, std::string("has ") + what + " in its header");
  }

  // NUL, in particular, would be the end for the lexer.
  void check_next() const {
    if (at_end() || is_blank(current())) return;
    if (is_control(current())) fail(next_, "a control character");
  }

  std::size_t closing_quote() const {
    for (auto at = next_; at < text_.size();) {
      if (text_[at] == '"') return at;
      if (is_control(text_[at])) fail(at, "a control character");
      const auto escape = text_[at] == '\\' ? json_escape_at(text_.substr(at)) : json_escape{0, 1};
      if (!escape) fail(at, "a malformed escape");
      at += escape->length;
    }
    fail(text_.size(), "a string without an end");
  }

  std::string_view text_;
  const subject& in_;
  std::size_t next_ = 0, last_ = 0, shown_ = 0;
  bool in_string_ = false;
};

struct json_iterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  char operator*() const { return text->current(); }
  json_iterator& operator++() {
    text->advance();
    return *this;
  }
  bool operator==(const json_iterator& other) const { return ended() == other.ended(); }
  bool ended() const { return text == nullptr || text->at_end(); }

  json_text* text = nullptr;  // null for the end
};

}  // namespace fmoe::io
