// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <fmoe/base/number_text.hpp>
#include "../support/catch.hpp"

using namespace fmoe::detail;

namespace {

// Both ways to read a number: the library's and, where it has one, that of streams.
template <class Real>
void reads(const std::string& text, Real expected) {
  Real value = 17, by_stream = 17;
  CHECK(is_number(text, value));
  CHECK(real_by_stream(text, by_stream));
  const bool same = value == expected || (std::isnan(value) && std::isnan(expected));
  CHECK(same);
  const bool same_by_stream =
      by_stream == expected || (std::isnan(by_stream) && std::isnan(expected));
  CHECK(same_by_stream);
}

void refuses(const std::string& text) {
  double value = 17, by_stream = 17;
  CHECK_FALSE(is_number(text, value));
  CHECK_FALSE(real_by_stream(text, by_stream));
}

}  // namespace

TEST_CASE("texts are read as numbers", "[number_text]") {
  reads("0.1", 0.1);
  reads("0.1", 0.1f);
  reads("-2.5e-3", -2.5e-3);
  reads("1.7976931348623157e+308", std::numeric_limits<double>::max());
  reads("16777217", 16777217.0);
  reads("7", 7.0f);
  reads("inf", std::numeric_limits<double>::infinity());
  reads("-inf", -std::numeric_limits<float>::infinity());
  reads("nan", std::numeric_limits<double>::quiet_NaN());
}

TEST_CASE("other texts are no numbers", "[number_text]") {
  for (const char* text : {"", " 1", "1 ", "+1", "0x10", "1,5", "--1", "-", ".", "e5", "1e", "one",
                           "1e999", "-+1", "1.2.3", "1-2"})
    refuses(text);
}

TEST_CASE("integers are read whole", "[number_text]") {
  std::uint64_t n = 0;
  CHECK(is_number("18446744073709551615", n));
  CHECK(n == ~std::uint64_t{0});
  CHECK_FALSE(is_number("18446744073709551616", n));
  CHECK_FALSE(is_number("3.0", n));
  CHECK_FALSE(is_number("-3", n));
}
