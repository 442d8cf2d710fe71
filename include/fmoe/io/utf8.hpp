// SPDX-License-Identifier: MIT
// Tells which bytes are UTF-8 (Unicode, table 3-7: no overlong forms, no surrogates, nothing above
// U+10FFFF).
#pragma once

#include <string_view>

namespace fmoe::io {

// Returns the position of the first sequence that is not well-formed, or the size of `text` if all
// are.
inline std::size_t utf8_fault(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const unsigned lead = byte(at);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xc2 ? 0
                               : lead < 0xe0 ? 2
                               : lead < 0xf0 ? 3
                               : lead < 0xf5 ? 4
                                             : 0;
    const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    const bool has_bad_second = length > 1 && (byte(at + 1) < low || byte(at + 1) > high);
    if (length == 0 || has_bad_second) return at;
    for (std::size_t i = 2; i < length; ++i)
      if ((byte(at + i) & 0xc0) != 0x80) return at;
    at += length;
  }
  return at;
}

}  // namespace fmoe::io
