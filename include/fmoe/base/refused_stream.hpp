// SPDX-License-Identifier: MIT
// The left operand of an operator<< that refuses to print.
#pragma once

#include <iosfwd>

namespace fmoe::detail {

// It is a class, so that any other operator<< for the same right operand is preferred.
struct refused_stream {
  refused_stream(std::ostream& stream) : out(stream) {}

  std::ostream& out;
};

}  // namespace fmoe::detail
