// SPDX-License-Identifier: MIT
// The exceptions that misuse of expressions and layers throws, in every build type and before any
// output is written.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace fmoe {

// Shapes do not fit together.
struct shape_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// A value is outside its domain: K > N, an empty parameter, or an input that overlaps an output.
struct value_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Throws an Error whose message is the parts, one after the other, for example "[einsum] 'n' is 5
// in operand 0 and 4 in operand 1 of "tn,no->to"".
template <class Error, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(text.str());
}

template <class... Types>
inline constexpr bool never = false;  // for a static_assert that fails if its template is used

template <class Error, class... Parts>
void expects(bool ok, const Parts&... parts) {
  if (!ok) fail<Error>(parts...);
}

}  // namespace fmoe
