// SPDX-License-Identifier: MIT
// Catch2 2.13 and 3 through one header; main() comes from main.cpp.
#pragma once

#include <string>

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "names.hpp"

namespace fmoe::test {

// Catch2 3 has other names for these. containing() is for CHECK_THROWS_WITH.
#if __has_include(<catch2/catch_test_macros.hpp>)
using Catch::Approx;
inline auto containing(const std::string& text) { return Catch::Matchers::ContainsSubstring(text); }
#else
using ::Approx;
inline auto containing(const std::string& text) { return Catch::Contains(text); }
#endif

}  // namespace fmoe::test
