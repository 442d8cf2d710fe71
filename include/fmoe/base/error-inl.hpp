// SPDX-License-Identifier: MIT
// The texts of errors.
#pragma once

#include <charconv>
#include <limits>

#include <fmoe/base/error.hpp>

namespace fmoe::detail {

FMOE_INLINE void text_part::append_to(std::string& text) const {
  // A natural number above it was a negative one before it became an index, and is shown as that.
  constexpr unsigned long long most = std::numeric_limits<long long>::max();
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
      text.append(
          digits,
          std::to_chars(digits, digits + sizeof digits, real_, std::chars_format::general, 6).ptr);
    }
  }
}

FMOE_INLINE std::string joined_text(std::initializer_list<text_part> parts) {
  std::string text;
  for (const text_part& part : parts) part.append_to(text);
  return text;
}

}  // namespace fmoe::detail
