// SPDX-License-Identifier: MIT
// What fmoe writes for programs and for people has the numbers of the classic locale, and is read
// so, in a program whose own locale groups digits and has a decimal comma.
#include <fmoe/cost.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/tune.hpp>

#include <functional>
#include <locale>
#include <sstream>
#include <string>

#include "support/agree.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

struct with_commas : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

// A program that groups digits, until the end of the scope.
class grouping {
 public:
  grouping() : before_(std::locale::global({std::locale::classic(), new with_commas})) {}
  ~grouping() { std::locale::global(before_); }

 private:
  std::locale before_;
};

std::string said_by(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing is thrown";
}

// The same text in both locales.
void check_text(const std::function<std::string()>& text) {
  const std::string expected = text();
  const grouping digits;
  std::ostringstream grouped;
  grouped << 12345.5;
  REQUIRE(grouped.str() == "12.345,5");
  CHECK(text() == expected);
}

TEST_CASE("texts have the numbers of the classic locale, whatever that of the program") {
  const parameter<float, 2> w({2000, 1500});
  const tensor<float, 2> x({1234, 2000});
  const auto y = einsum<"ti,io->to">(x, w);
  SECTION("a machine") {
    check_text([] {
      std::ostringstream text;
      text.imbue(std::locale::classic());
      text << this_machine();
      return text.str();
    });
  }
  SECTION("a plan") {
    check_text([&] { return explain(y).text; });
    check_text([&] { return explain(y).dot; });
  }
  SECTION("an error") {
    check_text([&] { return said_by([&] { evaluate(einsum<"ti,jo->to">(x, w) + x); }); });
    check_text([&] { return said_by([&] { entmax(x, 0.25); }); });
  }
  SECTION("a tensor") {
    check_text([] {
      std::ostringstream text;
      text << tensor<float, 1>({2}, {12345.5, 0.25});
      return text.str();
    });
  }
}

TEST_CASE("a machine is read back in any locale") {
  const machine m = this_machine();
  std::ostringstream written;
  written << m;
  const grouping digits;
  std::ostringstream here;
  here << m;
  CHECK(here.str() == written.str());
  CHECK(machine_from(written.str()).one.flops == m.one.flops);
}

TEST_CASE("tuned shapes have the same keys in any locale") {
  const auto layer = [w = parameter<float, 2>({600, 500})](const auto& x) {
    return einsum<"ti,io->to">(x, w);
  };
  compile(layer, 400, {.tune = true});
  const std::string tuned = tuned_shapes();
  REQUIRE(!tuned.empty());
  const grouping digits;
  CHECK(tuned_shapes() == tuned);
  use_tuned_shapes(tuned);
  CHECK(tuned_shapes() == tuned);
  compile(layer, 400, {.tune = true});  // known, so nothing is added
  CHECK(tuned_shapes() == tuned);
}

}  // namespace
