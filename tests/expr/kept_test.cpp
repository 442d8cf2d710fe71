// SPDX-License-Identifier: MIT
// The kept entries of a selection as results, beside the dense rows of the oracle.
#include <fmoe/expr/selection.hpp>

#include "../support/agree.hpp"
#include "../support/allocations.hpp"
#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEMPLATE_TEST_CASE("kept entries of every weighting and shape", "[kept]", float, double) {
  using T = TestType;
  const auto check = [](const auto& selection) {
    const auto [values, indices] = kept(selection);
    CHECK(agrees(values));
    CHECK(agrees(indices));
  };
  const auto x = random<tensor<T, 2>>({70, 300}, 1);
  for (const extent k : {extent{0}, extent{1}, extent{7}, extent{299}, extent{300}})
    for (const weighting w : {weighting::score, weighting::softmax, weighting::softmax_of_all,
                              weighting::one, weighting::relu}) {
      INFO(k << " with weights " << static_cast<int>(w));
      check(top_k(x, k, w));
    }
  check(top_k(random<tensor<T, 3>>({9, 4, 30}, 2), 5));
  check(top_k(relu(x), 290));
  check(product_top_k(random<tensor<T, 4>>({5, 3, 2, 8}, 3), 6, 6));
}

TEST_CASE("a row that keeps fewer entries than K ends with zeros and -1", "[kept]") {
  const tensor<float, 2> x({2, 4}, std::array<float, 8>{0, 3, 0, -1, 0, 0, 0, 0});
  const auto [values, indices] = kept(top_k(x, 3));
  const auto is = [](const tensor<float, 2>& y, std::array<float, 6> wanted) {
    return std::equal(wanted.begin(), wanted.end(), y.data());
  };
  CHECK(is(evaluate(values), {3, 0, 0, 0, 0, 0}));
  CHECK(is(evaluate(indices), {1, -1, -1, -1, -1, -1}));
}

TEST_CASE("a layer shows what it selected and makes no dense row of it", "[kept]") {
  const auto w = random<parameter<float, 2>>({24, 5000}, 1),
             u = random<parameter<float, 2>>({5000, 16}, 2);
  const auto layer = [&](const auto& x) {
    const auto a = top_k(einsum<"ti,in->tn">(x, w), 8);
    const auto [values, indices] = kept(a);
    return std::tuple(einsum<"tn,no->to">(a, u), values, indices);
  };
  const plan::step_plan p = plan_of<float>(layer, arguments<2>{}, 40);
  for (const std::string& line : describe(p)) CHECK(!line.starts_with("expand"));
  CHECK(placement_is_sound(p));

  const auto x = random<tensor<float, 2>>({40, 24}, 3);
  const auto forward = compile(layer, 40);
  tensor<float, 2> y({40, 16}), values({40, 8}), indices({40, 8});
  forward(x, y, values, indices);
  CHECK(allocates_nothing([&] { forward(x, y, values, indices); }));
  const auto dense = evaluate(top_k(einsum<"ti,in->tn">(x, w), 8));
  bool same = true;
  for (extent t = 0; t < 40; ++t)
    for (extent k = 0; k < 8; ++k)
      same &= values(t, k) == dense(t, static_cast<extent>(indices(t, k)));
  CHECK(same);
}

TEST_CASE("only a selection of a known number of entries has kept ones", "[kept]") {
  const auto x = random<tensor<float, 2>>({3, 6}, 1);
  const std::string message =
      "[kept] takes a selection that keeps K entries of each row: top_k or product_top_k, and not "
      "fmoe::all";
  CHECK_THROWS_WITH(evaluate(kept(x).values), message);
  CHECK_THROWS_WITH(evaluate(kept(top_k(x, all)).values), message);
  CHECK_THROWS_WITH(evaluate(kept(top_p(x, 0.5, weighting::score)).values), message);
  CHECK_THROWS_WITH(evaluate(kept(nonzeros(x)).indices), message);
}

}  // namespace
