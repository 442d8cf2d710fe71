// SPDX-License-Identifier: MIT
// Any bytes are read as a safetensors file, or are refused by an io::error that points into them. A
// file that is read can be written, and is the same when it is read again.
#include <fmoe/io/safetensors.hpp>

#include "fuzz.hpp"

namespace fmoe::fuzz {

void judge(bytes input) {
  try {
    const auto file = io::safetensors::parse(input);
    io::arrays_by_name arrays;
    for (const io::array& a : file.arrays()) {
      expects(file.find(a.name()) == &a, "a name finds its array");
      arrays.emplace(a.name(), a);
    }
    const auto written = io::safetensors::serialize(arrays, file.metadata());
    const auto again = io::safetensors::parse(written);
    expects(again.metadata() == file.metadata(), "metadata stay");
    expects(again.names() == file.names(), "names stay");
    for (const io::array& a : again.arrays()) {
      const io::array& first = *file.find(a.name());
      expects(a.type() == first.type() && a.shape() == first.shape(), "types and shapes stay");
      expects(std::ranges::equal(a.bytes(), first.bytes()), "elements stay");
    }
  } catch (const io::error& e) {
    expects(e.byte_offset <= std::max<std::size_t>(input.size(), 8), "an offset within the file");
  }
}

}  // namespace fmoe::fuzz
