// SPDX-License-Identifier: MIT
// The exceptions that misuse of expressions and layers throws, in every build type and before any
// output is written.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace fmoe {

// Shapes that do not fit together.
struct shape_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// A value outside its domain: K > N, an empty parameter, overlapping input and output.
struct value_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

}  // namespace fmoe

namespace fmoe::detail {

// "[einsum] 'n' is 5 in operand 0 and 4 in operand 1 of "tn,no->to"": the parts are written one
// after the other.
template <class Error, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(text.str());
}

template <class... Types>
inline constexpr bool never = false;  // of static_asserts that fail where their template is used

template <class Error, class... Parts>
void expects(bool ok, const Parts&... parts) {
  if (!ok) fail<Error>(parts...);
}

}  // namespace fmoe::detail
