// SPDX-License-Identifier: MIT
// The exceptions that misuse of expressions and layers throws, in every build type and before any
// output is written.
#pragma once

#include <concepts>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmoe/base/compiler.hpp>
#include <fmoe/base/separate.hpp>

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

  void append_to(std::string& text) const;

 private:
  enum class kind : unsigned char { words, character, natural, integer, real };

  kind kind_ = kind::words;
  union {
    std::string_view words_;
    char character_;
    unsigned long long natural_;
    long long integer_;
    double real_;
  };
};

// Returns the parts, one after the other.
std::string joined_text(std::initializer_list<text_part> parts);

// Throws the error with the parts, one after the other, as its text.
template <class Error>
[[noreturn]] FMOE_COLD FMOE_NOINLINE void fail_with(std::initializer_list<text_part> parts) {
  throw Error(joined_text(parts));
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

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/base/error-inl.hpp>
#endif
