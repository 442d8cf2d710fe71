// SPDX-License-Identifier: MIT
// Compares the selection of product keys with the oracle.
#include <cstring>

#include <fmoe/expr/rows.hpp>

#include "../support/agree.hpp"
#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEMPLATE_TEST_CASE("product keys, every size and weighting", "[top_k]", float, double) {
  using T = TestType;
  for (const extent s : {extent{1}, extent{2}, extent{9}, extent{64}, extent{130}})
    for (const extent each : {extent{1}, s / 2 + 1, s})
      for (const extent keep :
           {extent{0}, extent{1}, each, std::min<extent>(each * each, 3 * each)})
        for (const weighting w : {weighting::score, weighting::softmax, weighting::relu}) {
          INFO(s << " each " << each << " keep " << keep);
          const auto x = random<tensor<T, 4>>({3, 2, 2, s}, 1);
          CHECK(agrees(product_top_k(x, keep, each, w)));
        }
}

TEST_CASE(
    "of equal sums the lowest expert wins, of equal scores the lowest key, and a score of zero "
    "counts",
    "[top_k]") {
  tensor<float, 4> x({1, 1, 2, 4});
  const auto selected = [&](std::array<float, 8> scores, extent keep, extent each) {
    std::ranges::copy(scores, x.data());
    const auto y = evaluate(product_top_k(x, keep, each));
    std::vector<extent> r;
    for (extent e = 0; e < 16; ++e)
      if (y.data()[e] != 0) r.push_back(e);
    return r;
  };
  using list = std::vector<extent>;
  CHECK(selected({0, 0, 0, 0, 0, 0, 0, 0}, 3, 3) == list{0, 1, 2});
  CHECK(selected({0, 0, 0, 0, 0, 0, 0, 0}, 3, 2) == list{0, 1, 4});
  CHECK(selected({1, 3, 2, 3, 5, 4, 5, 5}, 2, 2) == list{4, 6});
  CHECK(selected({2, 3, 1, 0, 0, 1, 2, 3}, 3, 3) ==
        list{3, 6, 7});  // 3+3; then 2+3 at 3 and 3+2 at 6
  CHECK(selected({-1, -2, 0, -3, -1, 0, -2, -3}, 1, 1) == list{9});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::ranges::copy(std::array<float, 8>{1, nan, 2, 3, 1, 2, 3, 4}, x.data());
  const auto y = evaluate(product_top_k(x, 1, 1, weighting::score));
  CHECK(std::isnan(y.data()[7]));
  for (float& v : std::span(x.data(), 8)) v = -std::numeric_limits<float>::infinity();
  const auto none = evaluate(product_top_k(x, 2, 2));
  CHECK(std::isnan(none.data()[0]));
}

TEST_CASE("rows of product keys do not depend on the tile, and states stay in their memory",
          "[top_k]") {
  const auto x = random<tensor<float, 4>>({29, 3, 2, 70}, 1);
  for (const extent each : {extent{0}, extent{5}, extent{70}}) {
    const auto y = product_top_k(x, std::min<extent>(each, 9), each);
    const auto whole = evaluate(y);
    for (const extent tile : {extent{1}, extent{2}, extent{5}}) {
      planner::plan_options options = tiny_options();
      options.shape.tile = tile;
      ir::graph g;
      const ir::node_id root = y.lower(g);
      CHECK(placement_is_sound(make_plan(g, root, 29, options)));
      const auto rows = evaluate(y, limited<float>(options));
      CHECK(std::memcmp(rows.data(), whole.data(), whole.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("product keys' misuse", "[top_k]") {
  CHECK_THROWS_AS(evaluate(product_top_k(random<tensor<float, 3>>({4, 3, 5}, 1), 1, 1)),
                  shape_error);
  const auto x = random<tensor<float, 3>>({4, 2, 5}, 1);
  CHECK_THROWS_AS(evaluate(product_top_k(x, 1, 6)), value_error);
  CHECK_THROWS_AS(evaluate(product_top_k(x, 5, 2)), value_error);
  CHECK_NOTHROW(evaluate(product_top_k(x, 4, 2)));
}

}  // namespace
