// SPDX-License-Identifier: MIT
// Any bytes are read as a GGUF file, or are refused by an io::error that points into them. The
// numbers and the metadata of a file that is read can be taken out of it.
#include <fmoe/io/gguf.hpp>

#include "fuzz.hpp"

namespace fmoe::fuzz {

namespace {

void take_numbers(const io::array& a) {
  const bool has_numbers = only_throws<io::error>(
      [&] { a.elements_as(dtype::float32, a.shape(), io::narrowing::allow); });
  const bool is_empty = a.bytes().empty();  // and its other axes may be too long for floats
  expects(is_empty || has_numbers == a.number_type().has_value(),
          "floating-point numbers are read");
  if (!has_numbers || a.shape().empty() || a.shape()[0] == 0) return;
  const io::array last = a.rows(a.shape()[0] - 1, 1);
  last.elements_as(dtype::float32, last.shape(), io::narrowing::allow);
}

void take_value(const io::gguf_value& value) {
  expects(value.is_array() || value.text().has_value(), "what is no array has a text");
  if (!value.is_array()) return;
  std::size_t size = 0;
  const bool is_read = only_throws<io::error>([&] {
    size = value.type() == io::gguf_type::string ? value.get<std::vector<std::string>>().size()
                                                 : value.get<std::vector<std::uint8_t>>().size();
  });
  expects(is_read || value.type() != io::gguf_type::string, "texts are read");
  expects(!is_read || size == value.size(), "an array has as many values as it says");
}

}  // namespace

void judge(bytes input) {
  try {
    const auto file = io::gguf::parse(input);
    for (const io::array& a : file.arrays()) {
      expects(file.find(a.name()) == &a, "a name finds its array");
      take_numbers(a);
    }
    for (const auto& entry : file.values()) take_value(entry.second);
  } catch (const io::error& e) {
    expects(e.byte_offset <= input.size(), "an offset within the file");
  }
}

}  // namespace fmoe::fuzz
