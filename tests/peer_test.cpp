// SPDX-License-Identifier: MIT
// Compares PEER with double loops over all N experts.
#include <fmoe/peer.hpp>

#include "support/agree.hpp"
#include "support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

struct sizes {
  extent t = 7, d = 14, h = 3, s = 9, k = 5;
};

template <class T>
peer<T> random_peer(const sizes& n, unsigned seed, extent active, bool map, bool separate) {
  peer<T> l;
  const extent experts = n.s * n.s * (separate ? n.h : 1);
  if (map) l.queries = random<parameter<T, 2>>({n.d, 2 * n.h * n.k}, seed, 0.3f);
  l.keys = random<parameter<T, 4>>({n.h, n.s, 2, map ? n.k : n.d / 2}, seed + 1);
  l.down = random<parameter<T, 2>>({experts, n.d}, seed + 2, 0.3f);
  l.up = random<parameter<T, 2>>({experts, n.d}, seed + 3);
  l.active = active;
  return l;
}

// Calls visit(t, head, e, row of `down`, w gelu(x . u)) for what each head selects. Ranks all s^2
// sums of a head, the lowest expert first among equals.
template <class T>
void for_each_selected(const peer<T>& l, const tensor<T, 2>& x, const auto& visit) {
  const auto [h, s, two, keys] = l.keys.shape();
  const extent d = x.shape()[1], n = s * s;
  for (extent t = 0; t < x.shape()[0]; ++t) {
    std::vector<double> z(d);
    double squares = 0;
    for (extent i = 0; i < d; ++i) {
      z[i] = convert<double>(x(t, i));
      squares += z[i] * z[i];
    }
    for (extent i = 0; !l.scale.empty() && i < d; ++i)
      z[i] *= std::sqrt(static_cast<double>(d)) / std::sqrt(squares) *
              (convert<double>(l.scale(i)) + 1);
    for (extent head = 0; head < h; ++head) {
      std::vector<double> list[2];
      for (extent p = 0; p < 2; ++p) {
        std::vector<double> query(keys);
        for (extent q = 0; q < keys; ++q)
          if (l.queries.empty()) query[q] = z[p * keys + q];
          else
            for (extent i = 0; i < d; ++i)
              query[q] += z[i] * convert<double>(l.queries(i, (p * h + head) * keys + q));
        for (extent a = 0; a < s; ++a) {
          double sum = 0;
          for (extent q = 0; q < keys; ++q)
            sum += query[q] * convert<double>(l.keys(head, a, p, q));
          list[p].push_back(sum);
        }
      }
      std::vector<std::pair<double, extent>> order;
      for (extent e = 0; e < n; ++e) order.emplace_back(-(list[0][e / s] + list[1][e % s]), e);
      std::ranges::sort(order);
      order.resize(l.active);
      double mass = 0;
      for (const auto& [score, e] : order) mass += std::exp(order[0].first - score);
      for (const auto& [score, e] : order) {
        const double w = l.weights == weighting::relu ? std::max(-score, 0.0)
                                                      : std::exp(order[0].first - score) / mass;
        const extent row = l.down.shape()[0] == n ? e : head * n + e;
        double hidden = 0;
        for (extent i = 0; i < d; ++i) hidden += z[i] * convert<double>(l.down(row, i));
        hidden = hidden / 2 * std::erfc(-hidden / std::sqrt(2.0));
        visit(t, head, e, row, w * hidden);
      }
    }
  }
}

template <class T>
std::vector<double> output(const peer<T>& l, const tensor<T, 2>& x) {
  const extent d = x.shape()[1];
  std::vector<double> y(x.size());
  for_each_selected(l, x, [&](extent t, extent, extent, extent row, double a) {
    for (extent i = 0; i < d; ++i) y[t * d + i] += a * convert<double>(l.up(row, i));
  });
  return y;
}

// [t, h, e]: the norms of what experts add.
template <class T>
std::vector<double> added(const peer<T>& l, const tensor<T, 2>& x) {
  const extent h = l.keys.shape()[0], n = l.keys.shape()[1] * l.keys.shape()[1];
  std::vector<double> norms(x.shape()[0] * h * n);
  for_each_selected(l, x, [&](extent t, extent head, extent e, extent row, double a) {
    double squares = 0;
    for (extent i = 0; i < x.shape()[1]; ++i)
      squares += convert<double>(l.up(row, i)) * convert<double>(l.up(row, i));
    norms[(t * h + head) * n + e] = std::abs(a) * std::sqrt(squares);
  });
  return norms;
}

template <class T>
constexpr double tolerance = sizeof(T) == 4 ? 4e-6 : 1e-14;

TEMPLATE_TEST_CASE("PEER is its equation, for every option", "[peer]", float, double) {
  using T = TestType;
  for (const auto& n : {sizes{}, sizes{1, 4, 1, 1, 3}, sizes{5, 34, 2, 33, 8}})
    for (const bool map : {false, true})
      for (const bool separate : {false, true})
        for (const weighting w : {weighting::softmax, weighting::relu})
          for (const extent k : {extent{0}, extent{1}, std::min<extent>(n.s, 4)}) {
            INFO(n.s << " map " << map << " separate " << separate << " relu "
                     << (w == weighting::relu) << " k " << k);
            auto layer = random_peer<T>(n, 10, k, map, separate);
            layer.weights = w;
            const auto x = random<tensor<T, 2>>({n.t, n.d}, 1);
            CHECK(relative_error(evaluate(layer(x)).data(), output(layer, x)) <= tolerance<T>);
            layer.scale = random<parameter<T, 1>>({n.d}, 20);
            layer.candidates = std::min(n.s, k + 3);
            CHECK(relative_error(evaluate(layer(x)).data(), output(layer, x)) <= tolerance<T>);
            CHECK(relative_error(evaluate(layer.contribution_norms(x)).data(), added(layer, x)) <=
                  tolerance<T>);
          }
}

TEST_CASE("one expert has weight one; no tokens, one token, a NaN in a row", "[peer]") {
  const auto g = evaluate(random_peer<float>({4, 4, 2, 1, 3}, 10, 1, true, false)
                              .coefficients(random<tensor<float, 2>>({4, 4}, 1)));
  CHECK(std::all_of(g.data(), g.data() + g.size(), [](float x) { return x == 1; }));
  const sizes n;
  const auto layer = random_peer<float>(n, 10, 4, true, false);
  CHECK(evaluate(layer(tensor<float, 2>({0, n.d}))).size() == 0);
  const auto x = random<tensor<float, 2>>({n.t, n.d}, 1);
  auto bad = random<tensor<float, 2>>({n.t, n.d}, 1);
  bad(3, 2) = std::numeric_limits<float>::quiet_NaN();
  const auto a = evaluate(layer(x)), b = evaluate(layer(bad));
  for (extent t = 0; t < n.t; ++t)
    for (extent o = 0; o < n.d; ++o) CHECK((t == 3 ? std::isnan(b(t, o)) : a(t, o) == b(t, o)));
  tensor<float, 2> y({n.t, n.d});
  compile(layer, n.t)(x, y);
  CHECK(std::equal(y.data(), y.data() + y.size(), a.data()));
  const auto narrow = random_peer<bf16>(n, 10, 4, true, true);
  peer<float> wide;
  const auto widened = [](const auto& from, auto& to) {
    to = std::remove_reference_t<decltype(to)>(from.shape());
    for (extent i = 0; i < from.size(); ++i) to.data()[i] = convert<float>(from.data()[i]);
  };
  widened(narrow.queries, wide.queries);
  widened(narrow.keys, wide.keys);
  widened(narrow.down, wide.down);
  widened(narrow.up, wide.up);
  wide.active = 4;
  CHECK(relative_error(evaluate(narrow(x)).data(), output(wide, x)) <= 4e-6);
}

TEST_CASE("the plan of PEER, with experts shared by the heads", "[peer][plan]") {
  blueprint g;
  const ir::node_id x = g.tensor({4, 8}), keys = g.parameter({2, 5, 2, 3}),
                    queries = g.parameter({8, 2, 2, 3});
  const ir::node_id scores = g.einsum("td,dlhk,hslk->thls", {x, queries, keys});
  const ir::node_id w =
      g.select({selection_rule::kind::product_top_k, 4, 0, weighting::softmax, 0, 4}, scores);
  const ir::node_id hidden =
      g.map(pointwise::gelu, 0, g.einsum("td,ed->te", {x, g.parameter({25, 8})}));
  const ir::node_id y = g.einsum("the,te,ed->td", {w, hidden, g.parameter({25, 8})});
  CHECK(g.shape(w) == extents{4, 2, 25});
  const auto steps = describe(make_program(g, y, machine_options()));
  REQUIRE(steps.size() > 3);
  CHECK(steps[0] == "gemm td,dlhk->thlk");
  CHECK(steps[1] == "gemm thlk,hslk->thls");
  CHECK(steps[2] == "product_top_k thls->ths");
}

TEST_CASE("of many experts PEER makes the hidden values of those it selects alone", "[peer]") {
  for (const bool separate : {false, true}) {
    const auto layer = random_peer<float>({5, 14, 2, 30, 5}, 1, 3, true, separate);
    const auto x = random<tensor<float, 2>>({5, 14}, 2);
    ir::graph g;
    const ir::node_id y = layer(x).lower(g);
    const auto steps = describe(make_plan(g, y, 5, machine_options()));
    REQUIRE(steps.size() == 5);
    CHECK(steps[2] == "product_top_k thls->ths");
    CHECK(steps[3].starts_with("sample "));
    CHECK(steps[4].starts_with("gather "));
    CHECK(relative_error(evaluate(layer(x)).data(), output(layer, x)) < 1e-5);
  }
}

TEST_CASE("the norms of PEER's experts are made for those it selects alone", "[peer]") {
  for (const bool separate : {false, true}) {
    const auto layer = random_peer<float>({5, 14, 2, 30, 5}, 1, 3, true, separate);
    const auto x = random<tensor<float, 2>>({5, 14}, 2);
    ir::graph g;
    const ir::node_id y = layer.contribution_norms(x).lower(g);
    const auto steps = describe(make_plan(g, y, 5, machine_options()));
    const auto has = [&](std::string_view start) {
      return std::ranges::any_of(steps, [&](const auto& s) { return s.starts_with(start); });
    };
    CHECK(has("rescale "));
    CHECK(has("sample "));
    CHECK(relative_error(evaluate(layer.contribution_norms(x)).data(), added(layer, x)) < 1e-5);
    const auto [values, experts] = kept(top_k(layer.contribution_norms(x), layer.active));
    const auto few = evaluate(std::tuple(values, experts));
    const auto all = evaluate(layer.contribution_norms(x));
    for (extent t = 0; t < 5; ++t)
      for (extent h = 0; h < 2; ++h)
        for (extent k = 0; k < 3; ++k) {
          const auto e = static_cast<extent>(std::get<1>(few)(t, h, k));
          CHECK(std::get<0>(few)(t, h, k) == all(t, h, e));
        }
  }
}

TEST_CASE("PEER's misuse throws before any output", "[peer]") {
  const sizes n;
  const auto x = random<tensor<float, 2>>({n.t, n.d}, 1),
             narrow = random<tensor<float, 2>>({n.t, n.d - 2}, 1);
  for (const bool map : {false, true}) {
    CHECK_THROWS_AS(evaluate(random_peer<float>(n, 10, 4, map, false)(narrow)), shape_error);
    CHECK_THROWS_AS(evaluate(random_peer<float>(n, 10, n.s + 1, map, false)(x)), value_error);
  }
  auto layer = random_peer<float>(n, 10, 5, true, false);
  layer.candidates = 2;
  CHECK_THROWS_AS(evaluate(layer(x)), value_error);  // 5 of 4 sums
  layer.candidates = n.s + 1;
  CHECK_THROWS_AS(evaluate(layer(x)), value_error);
  layer.candidates = n.s;
  CHECK_NOTHROW(evaluate(layer(x)));
  layer.down = random<parameter<float, 2>>({n.s * n.s + 1, n.d}, 1);
  CHECK_THROWS_AS(evaluate(layer(x)), shape_error);
  layer.down = {};
  CHECK_THROWS_AS(evaluate(layer(x)), std::invalid_argument);
  auto halves = random_peer<float>({n.t, 13, n.h, n.s, n.k}, 10, 4, false, false);
  CHECK_THROWS_AS(evaluate(halves(random<tensor<float, 2>>({n.t, 13}, 1))), shape_error);
}

}  // namespace
