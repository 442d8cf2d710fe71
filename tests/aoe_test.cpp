// SPDX-License-Identifier: MIT
// Compares AoE with the oracle, and checks its plan and its edge cases. The authors' numbers are in
// tests/golden/aoe.
#include <cstring>

#include <fmoe/aoe.hpp>

#include "support/agree.hpp"
#include "support/mixture.hpp"
#include "support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent width = 13;

template <class T>
aoe<T> layer_of(extent n = 9, extent l = 5, extent w = 40) {
  aoe<T> layer;
  layer.down = random<parameter<T, 3>>({width, n, l}, 1, 0.3f);
  layer.up = random<parameter<T, 3>>({n, l, w}, 2, 0.3f);
  layer.linear = random<parameter<T, 3>>({n, width, w}, 3, 0.3f);
  layer.output = random<parameter<T, 3>>({n, w, width}, 4, 0.3f);
  return layer;
}

TEMPLATE_TEST_CASE("AoE agrees with the oracle, for every way of routing", "[aoe]", float, double) {
  auto layer = layer_of<TestType>();
  for (const extent tokens : {extent{1}, extent{30}, extent{500}}) {
    const auto x = random<tensor<TestType, 2>>({tokens, width}, 7);
    for (const auto how : {routing::by::top_k, routing::by::top_p, routing::by::expert_choice})
      for (const auto weights : {weighting::softmax, weighting::softmax_of_all, weighting::score}) {
        layer.route.how = how;
        layer.route.weights = weights;
        CHECK(agrees(layer(x)));
        CHECK(agrees(layer.chosen(x)));
      }
    layer.route.rank_softmax = true;
    layer.bias = random<parameter<TestType, 1>>({width}, 8);
  }
}

TEST_CASE("AoE ranks by the L1, L2 or maximum norm", "[aoe]") {
  auto layer = layer_of<double>();
  const auto x = random<tensor<double, 2>>({60, width}, 7);
  for (const auto norm : {row_norm::l1, row_norm::l2, row_norm::max}) {
    layer.score = norm;
    CHECK(agrees(layer(x)));
  }
}

TEST_CASE("AoE computes the chosen experts alone, from the cache", "[aoe]") {
  auto layer = layer_of<float>();
  const auto steps = [&](const auto& e) {
    ir::graph g;
    const ir::node_id y = e.lower(g);
    return describe(make_plan(g, y, 30, machine_options()));
  };
  const tensor<float, 2> x({30, width});
  const lines group{"  pick ta->ta",     "  gemm td,ndw->tw",
                    "  pick tab->tb",    "  gemm tl,nlw->tw | silu | *",
                    "  gemm tw,nwd->td", "  put td,tn->td"};
  lines expected{"gemm td,dnl->tnl", "L2 norm tnl->tn", "top_k tn->tn", "group td,tn->td 2 of 9"};
  expected.insert(expected.end(), group.begin(), group.end());
  CHECK(steps(layer(x)) == expected);
  layer.route.how = routing::by::expert_choice;
  expected[2] = "expert_choice tn,tn->tn";
  expected[3] = "group td,tn->td 9 of 9";
  CHECK(steps(layer(x)) == expected);
}

TEST_CASE("a call of any size has the bits of one alone, whatever experts its neighbours choose",
          "[aoe]") {
  const auto layer = layer_of<float>(40);
  const auto x = random<tensor<float, 2>>({700, width}, 7);
  const auto y = evaluate(layer(x));
  const auto forward = compile(layer, 700);
  tensor<float, 2> one({1, width});
  for (const extent t : {extent{0}, extent{333}, extent{699}}) {
    const tensor<float, 2> row({1, width}, std::span<const float>(x.data() + t * width, width));
    forward(row, one);
    CHECK(std::memcmp(one.data(), y.data() + t * width, width * sizeof(float)) == 0);
  }
}

TEST_CASE("a NaN in one token changes no other row", "[aoe]") {
  const auto layer = layer_of<float>();
  auto x = random<tensor<float, 2>>({50, width}, 7);
  const auto y = evaluate(layer(x));
  x(20, 3) = NAN;
  const auto z = evaluate(layer(x));
  for (extent i = 0; i < y.size(); ++i)
    CHECK((i / width == 20 ? std::isnan(z.data()[i]) : z.data()[i] == y.data()[i]));
}

TEST_CASE(
    "AoE of no tokens, no expert, every expert, one expert, and experts that are all the same",
    "[aoe]") {
  auto layer = layer_of<double>();
  layer.bias = random<parameter<double, 1>>({width}, 8);
  const auto x = random<tensor<double, 2>>({20, width}, 7);
  CHECK(evaluate(layer(tensor<double, 2>({0, width}))).size() == 0);
  layer.route.active = 0;
  const auto none = evaluate(layer(x));
  for (extent i = 0; i < none.size(); ++i) CHECK(none.data()[i] == layer.bias(i % width));
  layer.route.active = 9;
  CHECK(agrees(layer(x)));
  layer.route.active = 10;
  CHECK_THROWS_WITH(evaluate(layer(x)),
                    "[top_k] K is 10 and the scores' last axis has 9: fmoe::all keeps every score");
  auto single = layer_of<double>(1);
  single.route.active = 1;
  CHECK(agrees(single(x)));
  const auto weight = evaluate(single.coefficients(x));
  CHECK(std::all_of(weight.data(), weight.data() + weight.size(), [](double w) { return w == 1; }));
  const auto same =
      evaluate(layer_of<float>().chosen(tensor<float, 2>({4, width})));  // all norms are 0
  for (extent n = 0; n < 9; ++n) CHECK(same(2, n) == (n < 2 ? 1 : 0));
}

TEST_CASE("a token chosen by no expert is zero; capacity is at least one token and at most all",
          "[aoe]") {
  auto layer = layer_of<double>();
  layer.route.how = routing::by::expert_choice;
  layer.route.capacity = 1;
  const auto x = random<tensor<double, 2>>({40, width}, 7);
  const auto y = evaluate(layer(x)), chosen = evaluate(layer.chosen(x));
  for (extent t = 0; t < 40; ++t) {
    bool any = false;
    for (extent n = 0; n < 9; ++n) any |= chosen(t, n) != 0;
    for (extent d = 0; d < width; ++d) CHECK((y(t, d) != 0) == any);
  }
  for (const extent capacity : {extent{0}, extent{1}, extent{17}, extent{1000}}) {
    layer.route.capacity = capacity;
    const auto c = evaluate(layer.chosen(x));
    for (extent n = 0; n < 9; ++n) {
      double sum = 0;
      for (extent t = 0; t < 40; ++t) sum += c(t, n);
      CHECK(sum == static_cast<double>(std::min(capacity, extent{40})));
    }
  }
  CHECK(capacity_of({selection_rule::kind::expert_choice, all}, 1, 9) == 1);
  CHECK(capacity_of({selection_rule::kind::expert_choice, all}, 40, 9) == 8);
  CHECK(capacity_of({selection_rule::kind::expert_choice, all}, 40, 1) == 40);
}

TEST_CASE("of tokens that an expert ranks alike it takes the earlier ones", "[aoe]") {
  tensor<float, 2> scores(
      // the first expert ranks all tokens equally, the second ranks only every third lower
      {50, 2});
  for (extent t = 0; t < 50; ++t) scores(t, 1) = t % 3 == 0 ? 1.f : 2.f;
  const auto chosen = evaluate(expert_choice(scores, scores, weighting::one, 5));
  for (extent t = 0; t < 50; ++t) {
    CHECK(chosen(t, 0) == (t < 5 ? 1 : 0));
    CHECK(chosen(t, 1) == (t == 1 || t == 2 || t == 4 || t == 5 || t == 7 ? 1 : 0));
  }
}

TEMPLATE_TEST_CASE("the layer is the sum of its experts, and its bias once", "[aoe]", float,
                   double) {
  auto layer = layer_of<TestType>();
  layer.bias = random<parameter<TestType, 1>>({width}, 8);
  layer.activation = pointwise::gelu_tanh;
  const auto x = random<tensor<TestType, 2>>({20, width}, 7);
  const auto a = evaluate(layer.coefficients(x));
  std::vector<double> y;
  for (extent n = 0; n < 9; ++n)
    add_expert(y, [&](extent t) { return a(t, n); }, evaluate(layer.expert(n)(x)));
  add_to_rows(y, layer.bias);
  CHECK(relative_error(evaluate(layer(x)).data(), y) <= (sizeof(TestType) == 4 ? 4e-6 : 1e-14));
  const auto expert = layer.expert(8);
  CHECK(expert.down.shape() == std::array<extent, 2>{width, 5});
  CHECK(expert.up.shape() == std::array<extent, 2>{5, 40});
  CHECK(expert.linear(3, 7) == layer.linear(8, 3, 7));
  CHECK(expert.output(7, 3) == layer.output(8, 7, 3));
  CHECK_THROWS_AS(layer.expert(9), value_error);
}

TEST_CASE("shapes that do not fit are refused", "[aoe]") {
  auto layer = layer_of<float>();
  CHECK_THROWS_AS(evaluate(layer(tensor<float, 2>({3, width + 1}))), shape_error);
  layer.up = random<parameter<float, 3>>({9, 6, 40}, 2);
  CHECK_THROWS_AS(evaluate(layer(tensor<float, 2>({3, width}))), shape_error);
}

}  // namespace
