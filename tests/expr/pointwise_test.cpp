// SPDX-License-Identifier: MIT
#include <fmoe/explain.hpp>
#include <fmoe/reference.hpp>

#include "../support/agree.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEMPLATE_TEST_CASE("every function of one number", "[pointwise]", float, double) {
  auto x = random<tensor<TestType, 2>>({6, 21}, 1);
  const TestType special[] = {0, -0.f, 1, -1, 30, -30, TestType(1e-20)};
  std::ranges::copy(special, x.data());
  using enum pointwise;
  for (const pointwise f :
       {relu, gelu, gelu_tanh, silu, sigmoid, squared_relu, exp, sqrt, negate, scale, threshold,
        fmoe::pointwise::tanh, fmoe::pointwise::abs, at_least, at_most, quotient}) {
    INFO(name_of(f));
    CHECK(agrees(apply(f, x, 0.5)));
  }
  CHECK(agrees(fmoe::log(x * x + 0.5)));
  CHECK(agrees(2 / (x * x + 0.5)));
}

TEST_CASE("the named functions are those", "[pointwise]") {
  const auto x = random<tensor<float, 1>>({40}, 1);
  const auto same = [](const auto& e, pointwise f, double parameter = 0) {
    ir::graph g;
    const ir::node_id id = e.lower(g);
    const auto& m = get<ir::map_node>(g[id].op);
    return m.f == number_function{f, parameter};
  };
  CHECK(same(relu(x), pointwise::relu));
  CHECK(same(gelu(x), pointwise::gelu));
  CHECK(same(gelu_tanh(x), pointwise::gelu_tanh));
  CHECK(same(silu(x), pointwise::silu));
  CHECK(same(sigmoid(x), pointwise::sigmoid));
  CHECK(same(squared_relu(x), pointwise::squared_relu));
  CHECK(same(exp(x), pointwise::exp));
  CHECK(same(fmoe::sqrt(x), pointwise::sqrt));
  CHECK(same(-x, pointwise::negate));
  CHECK(same(3 * x, pointwise::scale, 3));
  CHECK(same(x / 3, pointwise::quotient, 3));
  CHECK(same(3 / x, pointwise::inverse, 3));
  CHECK(same(tanh(x), pointwise::tanh));
  CHECK(same(log(x), pointwise::log));
  CHECK(same(abs(x), pointwise::abs));
  CHECK(same(max(x, 2), pointwise::at_least, 2));
  CHECK(same(max(2, x), pointwise::at_least, 2));
  CHECK(same(min(x, 2), pointwise::at_most, 2));
  CHECK(same(min(2, x), pointwise::at_most, 2));
}

TEST_CASE("functions of one's own are fused and planned like others", "[pointwise]") {
  const auto x = random<tensor<float, 2>>({30, 7}, 1);
  const auto w = random<parameter<float, 2>>({7, 50}, 2),
             v = random<parameter<float, 2>>({50, 3}, 3);
  const pointwise_function softplus("softplus", [](auto a) { return std::log1p(std::exp(a)); });
  const auto cubed = pointwise_function::of_spans("cubed", [](auto numbers) {
    for (auto& a : numbers) a = a * a * a;
  });
  const auto h = softplus(einsum<"ti,io->to">(x, w));
  CHECK(agrees(h));
  CHECK(agrees(einsum<"th,ho->to">(cubed(h * 0.5), v)));
  CHECK(agrees(top_k(cubed(einsum<"ti,io->to">(x, w)), 5)));
  CHECK(agrees(cubed(w)));
  CHECK(agrees(softplus(random<tensor<double, 3>>({4, 3, 5}, 4))));

  ir::graph g;
  const auto copy = softplus;
  const ir::node_id first = softplus(x).lower(g);
  CHECK(copy(x).lower(g) == first);
  CHECK(cubed(x).lower(g) != first);
  CHECK(explain(h).text.find(" | softplus") != std::string::npos);
  CHECK(explain(h).graph.find("softplus") != std::string::npos);
  const auto seven = pointwise_function("seven", [](double) { return 7; });
  CHECK(evaluate(seven(x))(0, 0) == 7);
  CHECK(evaluate(cubed(x), {.on = fmoe::reference()})(0, 0) ==
        static_cast<float>(std::pow(double{x(0, 0)}, 3)));
}

TEST_CASE("clamp keeps numbers between two bounds, and NaN", "[pointwise]") {
  const auto y = evaluate(clamp(tensor<float, 1>({4}, {-3, 0.5f, 7, NAN}), -1, 2));
  CHECK(y(0) == -1);
  CHECK(y(1) == 0.5f);
  CHECK(y(2) == 2);
  CHECK(std::isnan(y(3)));
}

TEST_CASE("where takes one of two values by the sign of the condition", "[pointwise]") {
  const tensor<float, 2> a({2, 3}, {1, 2, INFINITY, 4, NAN, 6}),
      b({2, 3}, {-1, INFINITY, -3, -4, -5, NAN}), c({2, 3}, {1, 0, 2, NAN, -1, 3});
  const auto y = evaluate(where(c, a, b));
  const tensor<float, 2> expected({2, 3}, {1, INFINITY, INFINITY, -4, -5, 6});
  CHECK(std::ranges::equal(y, expected));
  const tensor<float, 1> row({3}, {-1, 1, 1});
  CHECK(evaluate(where(row, a, b))(0, 0) == -1);
  CHECK(evaluate(where(row, a, b))(0, 2) == INFINITY);
}

TEST_CASE("zero_if puts 0 where its second operand is above 0, and keeps NaN", "[pointwise]") {
  const tensor<float, 2> a({2, 3}, {1, 2, NAN, 4, NAN, 6});
  const tensor<float, 1> where({3}, {1, 0, NAN});
  const auto y = evaluate(zero_if(true, a, where));
  CHECK(std::ranges::equal(std::span(y.data(), 2), std::array{0.f, 2.f}));
  CHECK(std::isnan(y(0, 2)));
  CHECK(y(1, 0) == 0);
  CHECK(std::isnan(y(1, 1)));
  CHECK(y(1, 2) == 6);
  CHECK(evaluate(zero_if(false, a, where))(0, 0) == 1);
}

TEST_CASE("a number stands on either side", "[pointwise]") {
  const auto x = random<tensor<float, 2>>({3, 5}, 1);
  const auto same = [](const auto& a, const auto& b) {
    const auto left = evaluate(a), right = evaluate(b);
    return std::ranges::equal(std::span(left.data(), left.size()),
                              std::span(right.data(), right.size()));
  };
  CHECK(same(x * 3, 3 * x));
  CHECK(same(2.5 + x, x + 2.5));
  CHECK(same(x - 2.5, x + -2.5));
  CHECK(same(1 - x, -x + 1));
}

TEST_CASE("relu, squared relu and threshold keep NaN", "[pointwise]") {
  const tensor<float, 1> x({3}, std::array{NAN, -1.f, 2.f});
  CHECK(equals(relu(x)));
  CHECK(equals(squared_relu(x)));
  CHECK(std::isnan(*evaluate(relu(x)).data()));
  CHECK(std::isnan(*evaluate(gelu(x)).data()));
}

TEMPLATE_TEST_CASE("sums, differences and Hadamard products align at the last axes", "[pointwise]",
                   float, double) {
  const auto a = random<tensor<TestType, 3>>({4, 3, 5}, 1),
             b = random<tensor<TestType, 3>>({4, 3, 5}, 2);
  const auto row = random<parameter<TestType, 1>>({5}, 3);
  const auto matrix = random<parameter<TestType, 2>>({3, 5}, 4);
  const auto one = random<parameter<TestType, 0>>({}, 5);
  const auto check = [&](const auto& l, const auto& r) {
    CHECK(agrees(l + r));
    CHECK(agrees(l - r));
    CHECK(agrees(l * r));
    CHECK(agrees(max(l, r)));
    CHECK(agrees(min(l, r)));
    CHECK(agrees(l / (sigmoid(r) + 0.5)));
  };
  check(a, b);
  check(a, a);
  check(a, row);
  check(matrix, a);
  check(one, a);
  check(row, matrix);
  CHECK_THROWS_AS(evaluate(a + random<parameter<TestType, 1>>({3}, 6)), shape_error);
  CHECK_THROWS_AS(evaluate(a + random<parameter<TestType, 1>>({1}, 6)), shape_error);
}

TEST_CASE("passes follow products, permuted ones too", "[pointwise]") {
  const auto x = random<tensor<float, 2>>({7, 5}, 1);
  const auto w = random<parameter<float, 3>>({5, 3, 4}, 2),
             v = random<parameter<float, 3>>({4, 5, 3}, 3);
  const auto bias = random<parameter<float, 1>>({4}, 4);
  const auto y = einsum<"ti,iab->tab">(x, w);
  const auto z = einsum<"ti,bia->tab">(x, v);
  CHECK(agrees(relu(y + bias) * z));
  CHECK(agrees(y * z + 2 * y - z));
  CHECK(agrees(
      y + bias +
      einsum<"tab->tba">(einsum<"ti,iab->tba">(x, random<parameter<float, 3>>({5, 3, 4}, 5)))));
  CHECK(agrees(y * y));
  CHECK(agrees(relu(relu(-x) + x) * x));
  CHECK(agrees(einsum<"tab->tb">(y * z) + bias));
}

TEST_CASE("sums over tokens and constants are computed whole", "[pointwise]") {
  const auto x = random<tensor<float, 2>>({30, 5}, 1);
  const auto w = random<parameter<float, 2>>({5, 5}, 2);
  const auto total = einsum<"ti->i">(relu(x));
  CHECK(agrees(total));
  CHECK(agrees(x - total));
  CHECK(agrees(einsum<"ti,io->to">(x - total, w) + total));
  CHECK(agrees(einsum<"ti,si->ts">(x, x)));
  CHECK(agrees(w + einsum<"ab->ba">(w)));
  CHECK(agrees(einsum<"ti,to->io">(x, x) + w));
  CHECK(agrees(relu(w) * w));
  CHECK(agrees(x / (abs(total) + 1)));
  CHECK(agrees(w / (einsum<"ti,to->io">(abs(x), abs(x)) + 1)));
  CHECK(agrees(max(w, einsum<"ti,to->io">(x, x))));
  CHECK(agrees(einsum<"ti,to->io">(x, x) / (abs(w) + 1)));
}

TEST_CASE("an optional bias is left out where the layer has none", "[pointwise]") {
  const auto x = random<tensor<float, 2>>({3, 5}, 1);
  const auto bias = random<parameter<float, 1>>({5}, 2);
  CHECK(reference(add_bias(x, bias)) == reference(x + bias));
  CHECK(reference(add_bias(x, parameter<float, 1>())) == reference(relu(x) - relu(-x)));
  CHECK(reference(choose(true, x, 2 * x)) == reference(1 * x));
  CHECK(reference(choose(false, x, 2 * x)) == reference(2 * x));
}

}  // namespace
