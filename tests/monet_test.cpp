// SPDX-License-Identifier: MIT
// Compares Monet's layers and routers with double loops over every pair of experts, written from
// the equations.
#include <fmoe/monet.hpp>

#include "support/agree.hpp"
#include "support/mixture.hpp"
#include "support/monet.hpp"
#include "support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using sizes = monet_sizes;

template <class T>
constexpr double tolerance = sizeof(T) == 4 ? 3e-6 : 1e-14;

TEST_CASE("the normal quantile", "[monet]") {
  CHECK(normal_quantile_above(0.5) == Approx(0).margin(1e-15));
  CHECK(normal_quantile_above(2.0 / 9) == Approx(0.7647096737863871).epsilon(1e-15));
  CHECK(normal_quantile_above(7.0 / 9) == Approx(-0.7647096737863871).epsilon(1e-15));
  CHECK(normal_quantile_above(32.0 / 512) == Approx(1.5341205443525463).epsilon(1e-15));
  CHECK(normal_quantile_above(1) == -std::numeric_limits<double>::infinity());
  CHECK(normal_quantile_above(0) == std::numeric_limits<double>::infinity());
}

TEMPLATE_TEST_CASE("both routers are their equations", "[monet]", float, double) {
  using T = TestType;
  for (const auto& n : {sizes{}, sizes{1, 5, 1, 1, 2}, sizes{20, 33, 8, 70, 2}})
    for (const bool released : {false, true})
      for (const extent k : {extent{1}, n.s / 2 + 1, n.s}) {
        INFO(n.s << ' ' << released << " k " << k);
        const auto r = random_router<T>(n, 30, k, released);
        const auto x = random<tensor<T, 2>>({n.t, n.d}, 1);
        const double share = static_cast<double>(k) / static_cast<double>(n.s);
        const double sigma = normal_quantile_above(share);
        const auto a = evaluate(r.g1(x)), b = evaluate(r.g2(x));
        CHECK(relative_error(a.data(), routing_of(x, r.keys1, r.mean1, r.variance1, n.p, k,
                                                  sigma)) <= tolerance<T>);
        CHECK(relative_error(b.data(), routing_of(x, r.keys2, r.mean2, r.variance2, n.p, k,
                                                  sigma)) <= tolerance<T>);
        const auto both = evaluate(r(x));
        for (extent t = 0; t < n.t; ++t)
          for (extent h = 0; h < n.p; ++h)
            for (extent i = 0; i < n.s; ++i) {
              CHECK(both(t, h, i) == a(t, h, i));
              CHECK(both(t, n.p + h, i) == b(t, h, i));
            }
      }
}

TEST_CASE("ties: top-k takes the lower ones, the threshold all that reach it", "[monet]") {
  const sizes n{1, 1, 1, 5, 2};
  auto r = random_router<float>(n, 30, 2, false);
  for (extent k = 0; k < 5; ++k) r.keys1(0, k) = k == 1 ? 0.f : 1.f;
  tensor<float, 2> x({1, 1});
  x(0, 0) = 1;
  const auto g = evaluate(r.g1(x));
  CHECK(std::vector<float>(g.data(), g.data() + 5) == std::vector<float>{0.5f, 0, 0.5f, 0, 0});
  r.mean1 = parameter<float, 1>({1});
  r.mean1(0) = 3;
  r.variance1 = parameter<float, 1>({1});
  const auto all_tied =
      evaluate(r.g1(x));  // every score is below the bound: those tied at the maximum remain
  CHECK(std::vector<float>(all_tied.data(), all_tied.data() + 5) ==
        std::vector<float>{0.25f, 0, 0.25f, 0.25f, 0.25f});
}

TEST_CASE("one expert has weight one, scores of -infinity make NaN, an empty head nothing",
          "[monet]") {
  for (const bool released : {false, true}) {
    const sizes one{4, 3, 2, 1, 2};
    const auto g = evaluate(
        random_router<float>(one, 30, 1, released).g1(random<tensor<float, 2>>({4, 3}, 1)));
    CHECK(std::all_of(g.data(), g.data() + g.size(), [](float x) { return x == 1; }));
    for (const extent k : {extent{2}, extent{4}}) {
      auto r = random_router<float>({1, 1, 1, 4, 2}, 30, k, released);
      for (extent i = 0; i < 4; ++i) r.keys1(0, i) = 1;
      tensor<float, 2> x({1, 1});
      x(0, 0) = -std::numeric_limits<float>::infinity();
      const auto y = evaluate(r.g1(x));
      CHECK(std::any_of(y.data(), y.data() + 4, [](float v) { return std::isnan(v); }));
    }
  }
  const auto r = random_router<float>({2, 3, 2, 4, 2}, 30, 0, false);
  const auto g = evaluate(r.g1(random<tensor<float, 2>>({2, 3}, 1)));
  CHECK(std::all_of(g.data(), g.data() + g.size(), [](float x) { return x == 0; }));
}

template <class T, class Layer>
void check(Layer layer, const sizes& n, bool released) {
  const auto r = random_router<T>(n, 50, n.s / 3 + 1, released);
  const auto x = random<tensor<T, 2>>({n.t, n.d}, 1);
  const auto g1 = evaluate(r.g1(x)), g2 = evaluate(r.g2(x));
  for (const pointwise f : {pointwise::squared_relu, pointwise::gelu, pointwise::relu}) {
    layer.activation = f;
    const auto y = evaluate(layer(x, g1, g2));
    CHECK(relative_error(y.data(), output(layer, x, g1, g2)) <= tolerance<T>);
  }
  const auto wild1 = random<tensor<T, 3>>({n.t, n.p, n.s}, 60),
             wild2 = random<tensor<T, 3>>({n.t, n.p, n.s}, 61);
  const auto y = evaluate(layer(x, wild1, wild2));  // g does not sum to one
  CHECK(relative_error(y.data(), output(layer, x, wild1, wild2)) <= tolerance<T>);

  layer.deleted = {{0, 0}};
  CHECK(relative_error(evaluate(layer(x, g1, g2)).data(), output(layer, x, g1, g2)) <=
        tolerance<T>);
  for (extent i = 0; i < n.s; ++i) {
    layer.deleted.push_back({i, n.s / 2});
    layer.deleted.push_back({n.s - 1, i});
  }
  CHECK(relative_error(evaluate(layer(x, g1, g2)).data(), output(layer, x, g1, g2)) <=
        tolerance<T>);
  CHECK(relative_error(evaluate(layer(x, wild1, wild2)).data(), output(layer, x, wild1, wild2)) <=
        tolerance<T>);
  const auto fused = evaluate(layer(x, r.g1(x), r.g2(x)));
  CHECK(relative_error(fused.data(), output(layer, x, g1, g2)) <= tolerance<T>);
  for (extent i = 0; i < n.s; ++i)
    for (extent j = 0; j < n.s; ++j) layer.deleted.push_back({i, j});
  const auto none = evaluate(layer(x, wild1, wild2));
  CHECK(std::all_of(none.data(), none.data() + none.size(), [](T v) { return v == 0; }));
}

TEMPLATE_TEST_CASE("layers are sums over all pairs that are not deleted", "[monet]", float,
                   double) {
  using T = TestType;
  for (const auto& n :
       {sizes{}, sizes{1, 4, 1, 1, 2}, sizes{1, 14, 3, 9, 6}, sizes{3, 34, 4, 33, 16}})
    for (const bool released : {false, true}) {
      INFO(n.t << ' ' << n.s << ' ' << released);
      check<T>(random_hd<T>(n, 10), n, released);
      check<T>(random_vd<T>(n, 10), n, released);
    }
  const sizes n;
  auto hd = random_hd<T>(n, 10);
  auto vd = random_vd<T>(n, 10);
  hd.encoder_bias = {};
  vd.encoder_bias1 = {};
  check<T>(hd, n, true);
  check<T>(vd, n, true);
}

// The experts are those of both lists, in this order; some are deleted.
template <class T, class Layer>
void check_norms(Layer layer, const sizes& n) {
  const auto x = random<tensor<T, 2>>({n.t, n.d}, 1);
  const auto g1 = random<tensor<T, 3>>({n.t, n.p, n.s}, 60),
             g2 = random<tensor<T, 3>>({n.t, n.p, n.s}, 61);
  layer.deleted = {{n.s - 1, 0}};
  std::vector<index_pair> list = layer.deleted;
  for (extent i = 0; i < n.s; ++i) list.push_back({i, (3 * i + 1) % n.s});
  std::vector<double> expected;
  for (extent t = 0; t < n.t; ++t) {
    const auto expert = experts_of(layer, x, t);
    for (const auto& [i, j] : list) {
      double weight = 0, squares = 0;
      for (extent p = 0; p < n.p; ++p)
        weight += static_cast<double>(g1(t, p, i)) * static_cast<double>(g2(t, p, j));
      for (const double y : expert(i, j)) squares += y * y;
      const bool is_deleted = index_pair{i, j} == layer.deleted[0];
      expected.push_back(is_deleted ? 0 : std::abs(weight) * std::sqrt(squares));
    }
  }
  const auto norms = evaluate(layer.contribution_norms(x, g1, g2, list));
  REQUIRE(norms.shape() == std::array<extent, 2>{n.t, list.size()});
  CHECK(relative_error(norms.data(), expected) <= tolerance<T>);
  CHECK_THROWS_AS(layer.contribution_norms(x, g1, g2, {{0, n.s}}), value_error);
  CHECK_THROWS_WITH(layer.contribution_norms(x, g1, g2, std::vector<index_pair>()),
                    "[contribution_norms] the list of experts is empty");
}

TEMPLATE_TEST_CASE("norms of what the experts of a list add", "[monet]", float, double) {
  for (const auto& n : {sizes{}, sizes{3, 14, 2, 4, 6}}) {
    auto hd = random_hd<TestType>(n, 10);
    auto vd = random_vd<TestType>(n, 10);
    check_norms<TestType>(hd, n);
    check_norms<TestType>(vd, n);
    hd.encoder_bias = {};
    vd.encoder_bias1 = {};
    check_norms<TestType>(hd, n);
    check_norms<TestType>(vd, n);
  }
}

// Each expert alone is its equation, and the layer is their sum. Deleted experts can be taken out,
// but are not in the sum.
template <class T, class Layer>
void check_experts(Layer layer, const sizes& n) {
  using A = arithmetic_t<T>;
  layer.deleted = {{0, n.s / 2}};
  const auto r = random_router<A>(n, 50, n.s, true);
  const auto x = random<tensor<A, 2>>({n.t, n.d}, 1);
  const auto g1 = evaluate(r.g1(x)), g2 = evaluate(r.g2(x));
  std::vector<double> sum;
  for (extent i = 0; i < n.s; ++i)
    for (extent j = 0; j < n.s; ++j) {
      const auto y = evaluate(layer.expert(i, j)(x));
      std::vector<double> expected;
      for (extent t = 0; t < n.t; ++t) {
        const auto e = experts_of(layer, x, t)(i, j);
        expected.insert(expected.end(), e.begin(), e.end());
      }
      REQUIRE(y.size() == expected.size());
      CHECK(relative_error(y.data(), expected) <= tolerance<A>);
      const auto weight = [&](extent t) {
        double w = 0;
        for (extent p = 0; p < n.p; ++p)
          w += static_cast<double>(g1(t, p, i)) * static_cast<double>(g2(t, p, j));
        return layer.deleted[0] == index_pair{i, j} ? 0 : w;
      };
      add_expert(sum, weight, y);
    }
  CHECK(relative_error(evaluate(layer(x, g1, g2)).data(), sum) <= tolerance<A>);
  CHECK_THROWS_AS(layer.expert(n.s, 0), value_error);
  CHECK_THROWS_AS(layer.expert(0, n.s), value_error);
}

TEMPLATE_TEST_CASE("an expert by itself, and the layers as sums of them", "[monet]", float, double,
                   bf16) {
  using T = TestType;
  for (const auto& n : {sizes{5, 6, 2, 4, 6}, sizes{3, 4, 1, 1, 2}}) {
    auto hd = random_hd<T>(n, 10);
    auto vd = random_vd<T>(n, 10);
    check_experts<T>(hd, n);
    check_experts<T>(vd, n);
    hd.activation = vd.activation = pointwise::gelu;
    hd.encoder_bias = {};
    vd.encoder_bias2 = {};
    check_experts<T>(hd, n);
    check_experts<T>(vd, n);
  }
}

TEST_CASE("zeroed routing is the sum over what remains", "[monet]") {
  const sizes n;
  const auto layer = random_hd<double>(n, 10);
  const auto x = random<tensor<double, 2>>({n.t, n.d}, 1);
  const auto r = random_router<double>(n, 50, 4, true);
  auto g1 = evaluate(r.g1(x));
  const auto g2 = evaluate(r.g2(x));
  for (extent t = 0; t < n.t; ++t)
    for (extent p = 0; p < n.p; ++p)
      for (extent i = 0; i < n.s; i += 2) g1(t, p, i) = 0;
  CHECK(relative_error(evaluate(layer(x, g1, g2)).data(), output(layer, x, g1, g2)) <= 1e-14);
}

TEST_CASE("weights of 16 bits are computed with in float", "[monet]") {
  const sizes n;
  const auto layer = random_vd<bf16>(n, 10);
  auto r = random_router<float>(n, 50, 4, true);
  const auto x = random<tensor<float, 2>>({n.t, n.d}, 1);
  const auto g1 = evaluate(r.g1(x)), g2 = evaluate(r.g2(x));
  CHECK(relative_error(evaluate(layer(x, g1, g2)).data(), output(layer, x, g1, g2)) <= 3e-6);
}

TEST_CASE("a compiled layer takes routing that a group of layers shares", "[monet]") {
  const sizes n{40, 14, 3, 9, 6};
  const auto x = random<tensor<float, 2>>({n.t, n.d}, 1);
  const auto r = random_router<float>(n, 50, 4, true);
  tensor<float, 3> routing({n.t, 2 * n.p, n.s});
  compile(r, n.t)(x, routing);
  const auto g1 = evaluate(r.g1(x)), g2 = evaluate(r.g2(x));
  tensor<float, 2> y({n.t, n.d});
  auto hd = random_hd<float>(n, 10);
  auto vd = random_vd<float>(n, 10);
  // The number of heads is not known.
  CHECK_THROWS_AS(compile(hd, arguments<2, 3, 3>{}, n.t), shape_error);
  hd.heads = vd.heads = n.p;
  compile(hd, arguments<2, 3, 3>{}, n.t)(x, g1, g2, y);
  CHECK(relative_error(y.data(), output(hd, x, g1, g2)) <= 3e-6);
  vd.deleted = {{3, 3}, {3, 4}};
  const auto forward = compile(vd, arguments<2, 3, 3>{}, n.t);
  forward(x, g1, g2, y);
  CHECK(relative_error(y.data(), output(vd, x, g1, g2)) <= 3e-6);
  const auto again = evaluate(vd(x, g1, g2));
  CHECK(std::equal(y.data(), y.data() + y.size(), again.data()));
  for (extent t = 0; t < n.t; ++t)
    for (extent h = 0; h < n.p; ++h)
      for (extent i = 0; i < n.s; ++i) CHECK(routing(t, n.p + h, i) == g2(t, h, i));
  tensor<float, 2> nothing({0, n.d});
  tensor<float, 3> no_routing({0, n.p, n.s});
  CHECK_NOTHROW(forward(nothing, no_routing, no_routing, nothing));
  CHECK(evaluate(hd(nothing, no_routing, no_routing)).size() == 0);
  CHECK(evaluate(r.g1(nothing)).size() == 0);
}

TEST_CASE("a NaN token poisons its own row only", "[monet]") {
  const sizes n;
  const auto r = random_router<float>(n, 50, 4, true);
  auto hd = random_hd<float>(n, 10);
  auto vd = random_vd<float>(n, 10);
  hd.deleted = vd.deleted = {{1, 2}, {3, 4}, {4, 4}};
  const auto x = random<tensor<float, 2>>({n.t, n.d}, 1);
  auto bad = random<tensor<float, 2>>({n.t, n.d}, 1);
  bad(3, 2) = std::numeric_limits<float>::quiet_NaN();
  const auto compare = [&](const auto& layer) {
    const auto a = evaluate(layer(x, r.g1(x), r.g2(x))),
               b = evaluate(layer(bad, r.g1(bad), r.g2(bad)));
    for (extent t = 0; t < n.t; ++t)
      for (extent o = 0; o < n.d; ++o) CHECK((t == 3 ? std::isnan(b(t, o)) : a(t, o) == b(t, o)));
  };
  compare(hd);
  compare(vd);
}

TEST_CASE("Monet's misuse throws before any output", "[monet]") {
  const sizes n;
  const auto x = random<tensor<float, 2>>({n.t, n.d}, 1),
             narrow = random<tensor<float, 2>>({n.t, n.d - 1}, 1);
  const auto g = random<tensor<float, 3>>({n.t, n.p, n.s}, 2),
             wide = random<tensor<float, 3>>({n.t, n.p, n.s + 1}, 2);
  auto hd = random_hd<float>(n, 10);
  CHECK_THROWS_AS(evaluate(hd(narrow, g, g)), shape_error);
  CHECK_THROWS_AS(evaluate(hd(x, wide, g)), shape_error);
  CHECK_THROWS_AS(evaluate(hd(x, g, wide)), shape_error);
  CHECK_THROWS_AS(evaluate(hd(x, g, random<tensor<float, 3>>({n.t, n.p + 1, n.s}, 2))),
                  shape_error);
  hd.heads = n.p + 1;
  CHECK_THROWS_AS(evaluate(hd(x, g, g)), shape_error);
  hd.heads = n.p;
  hd.deleted = {{n.s, 0}};
  CHECK_THROWS_AS(evaluate(hd(x, g, g)), value_error);
  hd.deleted = {};
  hd.encoder = random<parameter<float, 2>>({n.d, n.s * n.m + 1}, 1);
  CHECK_THROWS_AS(evaluate(hd(x, g, g)), shape_error);
  hd.bias = {};
  CHECK_THROWS_AS(evaluate(hd(x, g, g)), value_error);
  auto vd = random_vd<float>(n, 10);
  vd.bias2 = random<parameter<float, 2>>({n.s + 1, n.d / 2}, 1);
  CHECK_THROWS_AS(evaluate(vd(x, g, g)), shape_error);
  vd.encoder1 = {};
  CHECK_THROWS_AS(evaluate(vd(x, g, g)), value_error);
  for (const bool released : {false, true}) {
    CHECK_THROWS_AS(evaluate(random_router<float>(n, 1, n.s + 1, released).g1(x)), value_error);
    CHECK_THROWS_AS(evaluate(random_router<float>(n, 1, 2, released).g1(narrow)), shape_error);
    auto r = random_router<float>(n, 1, 2, released);
    r.heads = 2;  // 27 keys do not divide into 2 heads; or statistics have 3 heads
    CHECK_THROWS_AS(evaluate(r.g2(x)), shape_error);
  }
  CHECK_THROWS_AS(evaluate(random_router<float>(n, 1, 0, true).g1(x)), value_error);
  auto r = random_router<float>(n, 1, 2, true);
  r.variance2(1) = -1;
  CHECK_NOTHROW(evaluate(r.g1(x)));
  CHECK_THROWS_AS(evaluate(r.g2(x)), value_error);
  r.variance2 = {};
  CHECK_THROWS_AS(evaluate(r.g2(x)), value_error);
  auto no_heads = random_router<float>(n, 1, 2, false);
  no_heads.heads = 0;
  CHECK_THROWS_AS(evaluate(no_heads.g1(x)), value_error);
}

}  // namespace
