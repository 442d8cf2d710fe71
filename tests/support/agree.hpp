// SPDX-License-Identifier: MIT
// Compares evaluate() with the oracle.
#pragma once

#include <fmoe/evaluate.hpp>

#include "catch.hpp"
#include "oracle.hpp"

namespace fmoe::test {

template <operand E>
double error_of(const E& e, const compile_options& options = {}) {
  const auto y = evaluate(e, options);
  const auto expected = reference(e);
  REQUIRE(y.size() == expected.size());
  return relative_error(y.data(), expected);
}

// True if they agree within rounding of the arithmetic type.
template <operand E>
bool agrees(const E& e, const compile_options& options = {}) {
  const double error = error_of(e, options);
  CAPTURE(error);
  const double tolerance = std::is_same_v<typename expression_t<E>::scalar, double> ? 1e-14 : 4e-6;
  CHECK(error <= tolerance);
  return error <= tolerance;
}

// True if they agree bit for bit, for integers and selections.
template <operand E>
bool equals(const E& e, const compile_options& options = {}) {
  return error_of(e, options) == 0;
}

}  // namespace fmoe::test
