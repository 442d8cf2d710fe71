// SPDX-License-Identifier: MIT
// Tells which bytes are UTF-8 (Unicode, table 3-7: no overlong forms, no surrogates, nothing above
// U+10FFFF), and which letters a message may show.
#pragma once

#include <cstdint>
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

// Returns the bytes of the letter with which the text begins, or 0 if a reader might not see it, or
// might see something else: a byte that is not UTF-8, a control, a space, a mark that turns the
// direction of letters, an unassigned or private one. Above ASCII it knows these by their ranges.
inline std::size_t visible_letter(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return lead > 0x20 && lead < 0x7f ? 1 : 0;
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (utf8_fault(text.substr(0, length)) != length) return 0;
  std::uint32_t letter = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) letter = letter << 6 | (byte(i) & 0x3fu);
  constexpr std::uint32_t hidden[][2] = {{0x80, 0xa0},     {0xad, 0xad},     {0x61c, 0x61c},
                                         {0x2000, 0x200f}, {0x2028, 0x202f}, {0x205f, 0x206f},
                                         {0x3000, 0x3000}, {0xe000, 0xf8ff}, {0xfe00, 0xfe0f},
                                         {0xfeff, 0xfeff}, {0xfff0, 0xffff}, {0xe0000, 0x10ffff}};
  for (const auto& range : hidden)
    if (letter >= range[0] && letter <= range[1]) return 0;
  return length;
}

}  // namespace fmoe::io
