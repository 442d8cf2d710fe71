// SPDX-License-Identifier: MIT
// Einsum subscripts, such as "ti,ih->th": each letter names an axis; the letters after the arrow
// name the axes of the result. What users write may have blanks and lack the arrow; in_full makes
// the form that all others read.
#pragma once

#include <algorithm>
#include <string_view>

#include <fmoe/base/checked.hpp>

namespace fmoe::detail {

// Returns the position of c, or text.size() if the text does not contain it. string_view::find
// would not do: with -fsanitize=undefined, g++ 12 takes its pointers for no constants if the text
// is a template argument.
constexpr extent position_of(char c, std::string_view text) {
  extent i = 0;
  while (i < text.size() && text[i] != c) ++i;
  return i;
}

constexpr bool has(std::string_view labels, char c) {
  return position_of(c, labels) < labels.size();
}

// Calls put(c) for each character of the subscripts without blanks and with a result. Where there
// is no arrow, the result is that of numpy: the letters that occur once, in alphabetical order,
// capitals first. So "t i, i o" becomes "ti,io->ot".
template <class Put>
constexpr void in_full(std::string_view text, Put put) {
  for (const char c : text)
    if (c != ' ') put(c);
  if (has(text, '-')) return;
  put('-');
  put('>');
  for (char c = 'A'; c <= 'z'; ++c)
    if (std::count(text.begin(), text.end(), c) == 1) put(c);
}

constexpr extent size_in_full(std::string_view text) {
  extent size = 0;
  in_full(text, [&](char) { ++size; });
  return size;
}

constexpr extent operand_count(std::string_view text) {
  const auto operands = text.substr(0, position_of('-', text));
  return 1 + static_cast<extent>(std::count(operands.begin(), operands.end(), ','));
}

constexpr std::string_view operand_labels(std::string_view text, extent i) {
  text = text.substr(0, position_of('-', text));
  for (; i > 0; --i) text.remove_prefix(position_of(',', text) + 1);
  return text.substr(0, position_of(',', text));
}

constexpr std::string_view result_labels(std::string_view text) {
  return text.substr(position_of('-', text) + 2);
}

// True for letters and commas, then one arrow, then letters: for subscripts in full.
constexpr bool is_well_formed(std::string_view text) {
  const extent arrow = position_of('-', text);
  if (arrow + 1 >= text.size() || text[arrow + 1] != '>') return false;
  for (extent i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool sign = i == arrow || i == arrow + 1 || (c == ',' && i < arrow);
    if (!letter && !sign) return false;
  }
  return true;
}

// True if every label of the result is a label of an operand and occurs once in the result.
constexpr bool result_is_bound(std::string_view text) {
  const auto result = result_labels(text);
  for (const char c : result)
    if (!has(text.substr(0, position_of('-', text)), c) ||
        std::count(result.begin(), result.end(), c) != 1)
      return false;
  return true;
}

// True if the subscripts differ in the letters of their labels at most.
constexpr bool same_but_names(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (extent i = 0; i < a.size(); ++i) {
    const bool same_signs = (a[i] == ',') == (b[i] == ',') && (a[i] == '-') == (b[i] == '-');
    if (!same_signs || position_of(a[i], a) != position_of(b[i], b)) return false;
  }
  return true;
}

// A string literal as a template argument.
template <extent N>
struct subscripts {
  char text[N];

  constexpr subscripts(const char (&s)[N]) { std::copy_n(s, N, text); }
  // Those that a user wrote, in full: N is size_in_full(written) + 1.
  constexpr explicit subscripts(std::string_view written) {
    char* at = text;
    in_full(written, [&](char c) { *at++ = c; });
    *at = '\0';
  }
  constexpr std::string_view view() const { return {text, N - 1}; }
};

// Joins two texts, so that subscripts can be built from a number of operands.
template <extent N, extent M>
constexpr subscripts<N + M - 1> operator+(const subscripts<N>& a, const subscripts<M>& b) {
  char text[N + M - 1];
  std::copy_n(a.text, N - 1, text);
  std::copy_n(b.text, M, text + N - 1);
  return text;
}
template <extent N, extent M>
constexpr auto operator+(const subscripts<N>& a, const char (&b)[M]) {
  return a + subscripts<M>(b);
}
template <extent N>
constexpr auto operator+(const subscripts<N>& a, char b) {
  return a + subscripts<2>({b, '\0'});
}

}  // namespace fmoe::detail
