// SPDX-License-Identifier: MIT
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/labels.hpp>
#include "../support/catch.hpp"

using fmoe::detail::axis_labels;

TEST_CASE("labels of axes are joined, cut and compared as texts") {
  STATIC_REQUIRE(std::is_trivially_copyable_v<axis_labels>);
  const axis_labels a = "tio", none;
  CHECK(a.size() == 3);
  CHECK(none.empty());
  CHECK(a[0] == 't');
  CHECK(a.back() == 'o');
  CHECK(a == "tio");
  CHECK(a != axis_labels("toi"));
  CHECK(a.find('i') == 1);
  CHECK(a.find('x') == axis_labels::npos);
  CHECK(a.substr(1) == "io");
  CHECK(a.substr(0, 2) == "ti");
  CHECK(a.ends_with(a.substr(1)));
  CHECK(!a.ends_with("ti"));
  CHECK(axis_labels(2, 'x') == "xx");
  CHECK('n' + a + 'h' + "x" + none == "ntiohx");
  CHECK(fmoe::detail::has(a, 'o'));
  CHECK(std::string(a).append(a) == "tiotio");
}

TEST_CASE("labels of axes are inserted and erased") {
  axis_labels a = "tio";
  a.insert(0, 'n');
  a.insert(2, 'x');
  a.insert(5, 'y');
  CHECK(a == "ntxioy");
  a.erase('x');
  a.erase('z');
  CHECK(a == "ntioy");
  a += 't';
  a.erase('t');
  CHECK(a == "nioy");
  a[0] = 'm';
  CHECK(a == "mioy");
}

TEST_CASE("an operand has no more labels than there is room for") {
  axis_labels a(axis_labels::most, 'a');
  const axis_labels full = a;
  CHECK_THROWS_AS(a += 'b', std::length_error);
  CHECK_THROWS_AS(axis_labels(a.size() + 1, 'a'), std::length_error);
  CHECK(a == full);
}
