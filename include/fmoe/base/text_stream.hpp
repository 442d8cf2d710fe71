// SPDX-License-Identifier: MIT
// Streams of text whose numbers are those of the classic locale, whatever that of the program:
// another one groups digits.
#pragma once

#include <locale>
#include <sstream>
#include <string>
#include <utility>

namespace fmoe::detail {

class text_stream : public std::ostringstream {
 public:
  text_stream() { imbue(std::locale::classic()); }
};

class text_reader : public std::istringstream {
 public:
  explicit text_reader(std::string text) : std::istringstream(std::move(text)) {
    imbue(std::locale::classic());
  }
};

}  // namespace fmoe::detail
