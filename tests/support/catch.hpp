// SPDX-License-Identifier: MIT
// Catch2 2.13 and 3 through one header; main() comes from main.cpp or from Catch2::Catch2WithMain.
#pragma once

#include <string>

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

namespace fmoe::test {

// For CHECK_THROWS_WITH; Catch2 3 has another name for it.
inline auto containing(const std::string& text) {
#if __has_include(<catch2/catch_test_macros.hpp>)
  return Catch::Matchers::ContainsSubstring(text);
#else
  return Catch::Contains(text);
#endif
}

}  // namespace fmoe::test
