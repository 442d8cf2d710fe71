// SPDX-License-Identifier: MIT
// Any bytes are read as a GGUF file, or are refused by an io::error that points into them. The
// numbers and the metadata of a file that is read can be taken out of it.
#include <fmoe/io/gguf.hpp>

#include "fuzz.hpp"

namespace fmoe::fuzz {

void judge(bytes input) {
  try {
    const auto file = io::gguf::parse(input);
    for (const io::array& a : file.arrays()) {
      expects(file.find(a.name()) == &a, "a name finds its array");
      const bool has_numbers = only_throws<io::error>(
          [&] { a.elements_as(dtype::float32, a.shape(), io::narrowing::allow); });
      expects(has_numbers == a.number_type().has_value(), "floating-point numbers are read");
      if (a.shape().empty() || a.shape()[0] == 0 || !has_numbers) continue;
      const io::array last = a.rows(a.shape()[0] - 1, 1);
      last.elements_as(dtype::float32, last.shape(), io::narrowing::allow);
    }
    const auto metadata = file.metadata();
    for (const auto& [key, value] : file.values()) {
      expects(metadata.contains(key) != value.is_array(), "what is no array has a text");
      const bool is_text = value.type() == io::gguf_type::string;
      if (!value.is_array() || value.type() == io::gguf_type::array) continue;
      const bool is_read = only_throws<io::error>([&] {
        const auto n = is_text ? value.get<std::vector<std::string>>().size()
                               : value.get<std::vector<std::uint8_t>>().size();
        expects(n == value.size(), "an array has as many values as it says");
      });
      expects(is_read || !is_text, "texts are read");
    }
  } catch (const io::error& e) {
    expects(e.byte_offset <= input.size(), "an offset within the file");
  }
}

}  // namespace fmoe::fuzz
