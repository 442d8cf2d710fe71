// SPDX-License-Identifier: MIT
// Times for people.
#pragma once

#include <iomanip>
#include <string>

#include <fmoe/base/text_stream.hpp>

namespace fmoe::detail {

// Returns seconds with three digits, such as "1.23 ms".
inline std::string time_text(double seconds) {
  const bool is_long = seconds >= 1e-3;
  text_stream text;
  text << std::setprecision(3) << seconds * (is_long ? 1e3 : 1e6) << (is_long ? " ms" : " us");
  return text.str();
}

}  // namespace fmoe::detail
