// SPDX-License-Identifier: MIT
// main() of the test programs with Catch2 2; with Catch2 3 it comes from Catch2::Catch2WithMain.
#if !__has_include(<catch2/catch_test_macros.hpp>)
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
