// SPDX-License-Identifier: MIT
#include <fmoe/analysis.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using classes = std::vector<double>;

TEST_CASE("the accuracy lost for each class, as a part of what it had", "[polysemanticity]") {
  CHECK(accuracy_loss(classes{0.5, 0.75, 0.25, 1}, classes{0.25, 0.75, 0.5, 0}) ==
        classes{0.5, 0, -1, 1});
  CHECK(accuracy_loss(classes{0, 0}, classes{0, 0.5}) == classes{0, 0});
  CHECK(accuracy_loss({}, {}).empty());
  CHECK_THROWS_AS(accuracy_loss(classes{1, 1}, classes{1}), shape_error);
}

TEST_CASE("the distance from one class alone", "[polysemanticity]") {
  CHECK(polysemanticity(classes{0, 1, 0}) == 0);
  CHECK(polysemanticity(classes{0, 0, 0}) == 1);
  CHECK(polysemanticity(classes{0.5}) == 0.5);
  CHECK(std::abs(polysemanticity(classes{0.5, 0.25, 0.75, -0.5}) -
                 std::sqrt(0.25 + 0.0625 + 0.0625 + 0.25)) < 1e-15);
  CHECK(std::abs(polysemanticity(classes{-0.5, -0.5}) - std::sqrt(2.25 + 0.25)) < 1e-15);
  CHECK_THROWS_AS(polysemanticity({}), value_error);
}

TEST_CASE("experts that change nothing have no part in the mean", "[polysemanticity]") {
  const std::vector<classes> d{{0, 1}, {0, 0}, {0.5, 0}, {0, -0.0}};
  CHECK(mean_polysemanticity(d) == 0.25);
  CHECK_THROWS_AS(mean_polysemanticity(std::vector<classes>{{0, 0}}), value_error);
  CHECK_THROWS_AS(mean_polysemanticity({}), value_error);
}

}  // namespace
