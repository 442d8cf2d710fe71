// SPDX-License-Identifier: MIT
// The exceptions that misuse of expressions and layers throws, in every build type and before any
// output is written.
#pragma once

#include <charconv>
#include <concepts>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmoe/base/compiler.hpp>

namespace fmoe {

// Shapes do not fit together.
struct shape_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// A value is outside its domain: K > N, an empty parameter, or an input that overlaps an output.
struct value_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

}  // namespace fmoe

namespace fmoe::detail {

// A piece of an error's text: words, a character or a number, which is written as std::ostream
// does. It refers to words that are not its own.
class text_part {
 public:
  text_part(const char* words) : words_(words) {}
  text_part(std::string_view words) : words_(words) {}
  text_part(const std::string& words) : words_(words) {}
  text_part(char one) : kind_(kind::character), character_(one) {}
  text_part(double number) : kind_(kind::real), real_(number) {}
  template <std::unsigned_integral I>
  text_part(I number) : kind_(kind::natural),
                        natural_(number) {}
  template <std::signed_integral I>
  text_part(I number) : kind_(kind::integer),
                        integer_(number) {}

  void append_to(std::string& text) const {
    switch (kind_) {
      case kind::words: text += words_; break;
      case kind::character: text += character_; break;
      case kind::natural:
        text += natural_ > most ? std::to_string(static_cast<long long>(natural_))
                                : std::to_string(natural_);
        break;
      case kind::integer: text += std::to_string(integer_); break;
      case kind::real: {
        char digits[32];
        text.append(digits, std::to_chars(digits, digits + sizeof digits, real_,
                                          std::chars_format::general, 6)
                                .ptr);
      }
    }
  }

 private:
  enum class kind : unsigned char { words, character, natural, integer, real };

  // A natural number above it was a negative one before it became an index, and is shown as that.
  static constexpr unsigned long long most = std::numeric_limits<long long>::max();

  kind kind_ = kind::words;
  union {
    std::string_view words_;
    char character_;
    unsigned long long natural_;
    long long integer_;
    double real_;
  };
};

// Throws the error with the parts, one after the other, as its text.
template <class Error>
[[noreturn]] FMOE_COLD FMOE_NOINLINE void fail_with(std::initializer_list<text_part> parts) {
  std::string text;
  for (const text_part& part : parts) part.append_to(text);
  throw Error(text);
}

// Throws an Error whose message is the parts, one after the other, for example "[einsum] 'n' is 5
// in operand 0 and 4 in operand 1 of "tn,no->to"".
template <class Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  fail_with<Error>({text_part(parts)...});
}

template <class... Types>
inline constexpr bool never = false;  // for a static_assert that fails if its template is used

template <class Error, class... Parts>
void expects(bool ok, const Parts&... parts) {
  if (!ok) fail<Error>(parts...);
}

}  // namespace fmoe::detail
