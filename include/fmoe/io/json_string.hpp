// SPDX-License-Identifier: MIT
// Converts JSON strings to and from UTF-8.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace fmoe::io {

struct json_escape {
  char32_t character;
  std::size_t length;  // bytes of its text
};

// Returns the number in "\u1234" at the beginning of `text`.
inline std::optional<char32_t> json_code_unit(std::string_view text) {
  unsigned value = 0;
  if (text.size() < 6 || !text.starts_with("\\u")) return std::nullopt;
  const auto [end, fault] = std::from_chars(text.data() + 2, text.data() + 6, value, 16);
  return fault == std::errc() && end == text.data() + 6 ? std::optional<char32_t>(value)
                                                        : std::nullopt;
}

// Returns the escape at the beginning of `text`, or nullopt if there is none, or only half of a
// surrogate pair.
inline std::optional<json_escape> json_escape_at(std::string_view text) {
  constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
  const auto simple = text.size() < 2 ? text.npos : letters.find(text[1]);
  if (simple != text.npos) return json_escape{static_cast<unsigned char>(meanings[simple]), 2};
  const auto first = json_code_unit(text);
  if (!first || (*first & 0xfc00) == 0xdc00) return std::nullopt;
  if ((*first & 0xfc00) != 0xd800) return json_escape{*first, 6};
  const auto second = json_code_unit(text.substr(6));
  if (!second || (*second & 0xfc00) != 0xdc00) return std::nullopt;
  return json_escape{0x10000 + ((*first & 0x3ff) << 10) + (*second & 0x3ff), 12};
}

// Returns the characters that a well-formed `text` between quotes means.
inline std::string json_unescaped(std::string_view text) {
  std::string result;
  const auto append = [&](char32_t lead, char32_t rest, int shift) {
    result += static_cast<char>(lead | rest >> shift);
    while ((shift -= 6) >= 0) result += static_cast<char>(0x80 | (rest >> shift & 0x3f));
  };
  while (!text.empty()) {
    const auto plain = text.substr(0, text.find('\\'));
    result += plain;
    text.remove_prefix(plain.size());
    const auto escape = json_escape_at(text);
    if (!escape) break;  // nothing is left
    if (escape->character < 0x80) append(0, escape->character, 0);
    else if (escape->character < 0x800) append(0xc0, escape->character, 6);
    else if (escape->character < 0x10000) append(0xe0, escape->character, 12);
    else append(0xf0, escape->character, 18);
    text.remove_prefix(escape->length);
  }
  return result;
}

// Returns `text`, which must be UTF-8, between quotes.
inline std::string json_quoted(std::string_view text) {
  constexpr char hex[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') result.append({'\\', c});
    else if (byte < 0x20) result.append({'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]});
    else result += c;
  }
  return result + '"';
}

}  // namespace fmoe::io
