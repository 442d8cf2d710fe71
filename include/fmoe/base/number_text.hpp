// SPDX-License-Identifier: MIT
// Numbers of texts, in the form that std::to_chars writes and whatever the locale.
#pragma once

#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmoe/base/language.hpp>
#include <fmoe/base/text_stream.hpp>

namespace fmoe::detail {

// True if the library reads floating-point numbers by std::from_chars; libc++ before 20 does not.
#if defined(__cpp_lib_to_chars)
inline constexpr bool reads_real_chars = true;
#else
inline constexpr bool reads_real_chars = false;
#endif

// The same by a stream, which would also take blanks, signs and hexadecimal digits.
template <class Real>
bool real_by_stream(std::string_view text, Real& value) {
  const bool is_negative = text.starts_with('-');
  const std::string_view magnitude = text.substr(is_negative ? 1 : 0);
  Real read{};
  if (magnitude == "inf") {
    read = std::numeric_limits<Real>::infinity();
  } else if (magnitude == "nan") {
    read = std::numeric_limits<Real>::quiet_NaN();
  } else {
    const bool begins =
        !magnitude.empty() && std::string_view("0123456789.").find(magnitude[0]) != text.npos;
    if (!begins || magnitude.find_first_not_of("0123456789.eE+-") != text.npos) return false;
    text_reader stream{std::string(magnitude)};
    if (!(stream >> read) || stream.peek() != std::istringstream::traits_type::eof()) return false;
  }
  value = is_negative ? -read : read;
  return true;
}

// True if the whole text is a number of this type, which `value` then is.
template <class Number>
bool is_number(std::string_view text, Number& value) {
  if constexpr (std::is_floating_point_v<Number> && !reads_real_chars) {
    return real_by_stream(text, value);
  } else {
    const char* const end = text.data() + text.size();
    const auto [at, fault] = std::from_chars(text.data(), end, value);
    return fault == std::errc() && at == end;
  }
}

}  // namespace fmoe::detail
