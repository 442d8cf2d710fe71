// SPDX-License-Identifier: MIT
// Any bytes are read as an .npy file, or are refused by an io::error that points into them. A file
// that is read can be written, and is the same when it is read again.
#include <fmoe/io/npy.hpp>

#include "fuzz.hpp"

namespace fmoe::fuzz {

void judge(bytes input) {
  try {
    const io::array a = io::npy::parse(input);
    const io::array again = io::npy::parse(io::npy::serialize(a));
    expects(a.type() == again.type() && a.shape() == again.shape(), "type and shape stay");
    expects(std::ranges::equal(a.bytes(), again.bytes()), "elements stay");
  } catch (const io::error& e) {
    expects(e.byte_offset <= std::max<std::size_t>(input.size(), 8), "an offset within the file");
  }
}

}  // namespace fmoe::fuzz
