// SPDX-License-Identifier: MIT
#include <fmoe/expr/rows.hpp>
#include <fmoe/reference.hpp>

#include "../support/agree.hpp"
#include "../support/x87.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr float infinity = std::numeric_limits<float>::infinity();

TEMPLATE_TEST_CASE("softmax of any rank and width", "[gate]", float, double) {
  const auto x = random<tensor<TestType, 3>>({5, 3, 37}, 1, 4);
  CHECK(agrees(softmax(x)));
  CHECK(agrees(softmax(einsum<"tpn->tnp">(x))));
  CHECK(agrees(softmax(random<tensor<TestType, 1>>({19}, 2))));
  CHECK(agrees(einsum<"tpn,no->to">(softmax(x), random<parameter<TestType, 2>>({37, 4}, 3))));
  CHECK(agrees(softmax(random<parameter<TestType, 2>>({4, 6}, 4))));
  CHECK(evaluate(softmax(tensor<TestType, 2>({3, 0}))).size() == 0);
  const auto one = evaluate(softmax(random<tensor<TestType, 2>>({3, 1}, 5, 100)));
  CHECK(std::all_of(one.data(), one.data() + 3, [](TestType v) { return v == 1; }));
}

TEST_CASE("softmax subtracts the maximum; a row of -inf, or with NaN or inf, is NaN alone",
          "[gate]") {
  const tensor<float, 2> x(
      {5, 3}, std::array{1000.f, 999.f, -1000.f, -infinity, -infinity, -infinity, NAN, 0.f, 1.f,
                         infinity, 0.f, 1.f, -infinity, 2.f, 2.f});
  const auto y = evaluate(softmax(x));
  CHECK(std::abs(y(0, 0) - 1 / (1 + std::exp(-1.f))) < 1e-6f);
  CHECK(y(0, 2) == 0);
  for (extent t = 1; t < 4; ++t)
    for (extent n = 0; n < 3; ++n) CHECK(std::isnan(y(t, n)));
  CHECK(y(4, 0) == 0);
  CHECK(y(4, 1) == 0.5f);
}

TEMPLATE_TEST_CASE("top_k keeps the k greatest, for every k", "[gate]", float, double) {
  const auto x = random<tensor<TestType, 2>>({11, 90}, 1);
  const auto w = random<parameter<TestType, 2>>({90, 7}, 2);
  for (const extent k : {extent{0}, extent{1}, extent{2}, extent{31}, extent{32}, extent{64},
                         extent{89}, extent{90}, all}) {
    INFO("k = " << k);
    CHECK(equals(top_k(x, k)));
    CHECK(agrees(einsum<"tn,no->to">(top_k(x, k), w)));
  }
  CHECK_THROWS_AS(evaluate(top_k(x, 91)), value_error);
  CHECK_THROWS_WITH(
      evaluate(top_k(x, 91)),
      "[top_k] K is 91 and the scores' last axis has 90: fmoe::all keeps every score");
  CHECK(evaluate(top_k(tensor<TestType, 2>({3, 0}), 0)).size() == 0);
}

TEST_CASE("of equal scores the lower index wins; NaN is greatest, then inf", "[gate]") {
  const tensor<float, 2> x(
      {4, 6}, std::array<float, 24>{
                  1.f,       2.f,  2.f,  2.f,  0.f,  2.f,  -1.f, NAN, 3.f,  NAN, infinity, NAN,  //
                  -infinity, -1.f, -5.f, -3.f, -1.f, -3.f, 0.f,  0.f, -0.f, 0.f, -1.f,     0.f});
  for (extent k = 0; k <= 6; ++k) {
    INFO("k = " << k);
    CHECK(equals(top_k(x, k)));
  }
  const auto two = evaluate(top_k(x, 2));
  CHECK(two(0, 1) == 2);
  CHECK(two(0, 2) == 2);
  CHECK(two(0, 3) == 0);
  CHECK(std::isnan(two(1, 1)));
  CHECK(std::isnan(two(1, 3)));
  CHECK(two(1, 4) == 0);
  CHECK(std::isinf(evaluate(top_k(x, 6))(2, 0)));
}

TEST_CASE("rows of -inf can be selected, and a NaN stays in its row", "[gate]") {
  auto x = random<tensor<float, 2>>({4, 70}, 1);
  std::fill_n(x.data(), 70, -infinity);
  x(2, 33) = NAN;
  CHECK(equals(top_k(x, 3)));
  const auto w = random<parameter<float, 2>>({70, 5}, 2);
  const auto y = evaluate(einsum<"tn,no->to">(top_k(x, 3), w));
  for (extent o = 0; o < 5; ++o) {
    CHECK(std::isfinite(y(1, o)));
    CHECK(std::isnan(y(2, o)));
    CHECK(std::isfinite(y(3, o)));
  }
}

TEST_CASE("what is not selected does not meet its weights", "[gate]") {
  const tensor<float, 2> x({1, 3}, std::array{1.f, 2.f, 0.f});
  const parameter<float, 2> w({3, 1}, std::array{NAN, 5.f, infinity});
  CHECK(*evaluate(einsum<"tn,no->to">(top_k(x, 1), w)).data() == 10);
  const parameter<float, 2> finite({3, 1}, std::array{1.f, 5.f, infinity});
  CHECK(*evaluate(einsum<"tn,no->to">(top_k(x, 2), finite)).data() == 11);
}

TEST_CASE("selections are used in every place", "[gate]") {
  const auto x = random<tensor<float, 2>>({9, 20}, 1), z = random<tensor<float, 2>>({9, 6}, 2);
  const auto a = top_k(x, 4);
  const auto w = random<parameter<float, 2>>({6, 20}, 3);
  CHECK(agrees(a + x));
  CHECK(agrees(a * x));
  CHECK(agrees(relu(a)));
  CHECK(agrees(softmax(a)));
  CHECK(agrees(einsum<"tn,hn->th">(a, w)));
  CHECK(agrees(einsum<"tn,th,hn->t">(a, z, w)));
  CHECK(agrees(einsum<"tn,tn->t">(a, a)));
  CHECK(agrees(einsum<"tn,hn->th">(a, w) + einsum<"tn,hn->th">(top_k(-x, 3), w)));
  CHECK(agrees(einsum<"tn,hno->tho">(a, random<parameter<float, 3>>({6, 20, 3}, 4))));
  CHECK(agrees(einsum<"tpn,no->tpo">(top_k(random<tensor<float, 3>>({3, 4, 20}, 5), 4),
                                     random<parameter<float, 2>>({20, 3}, 6))));
  CHECK(agrees(top_k(a, 2)));
}

TEST_CASE("selections of parameters are constants", "[gate]") {
  const auto p = random<parameter<float, 2>>({6, 9}, 1);
  const auto x = random<tensor<float, 2>>({4, 20}, 2);
  CHECK(equals(top_k(p, 2)));
  CHECK(agrees(einsum<"ti,oi->to">(random<tensor<float, 2>>({4, 9}, 3), top_k(p, 2))));
  CHECK(
      agrees(einsum<"tn,no->to">(top_k(x, 3), top_k(random<parameter<float, 2>>({20, 9}, 4), 2))));
  CHECK(agrees(einsum<"n,no->o">(top_k(random<parameter<float, 1>>({20}, 5), 3),
                                 random<parameter<float, 2>>({20, 9}, 4))));
}

TEMPLATE_TEST_CASE("entmax of any alpha", "[gate]", float, double) {
  for (const extent n : {extent{1}, extent{2}, extent{15}, extent{16}, extent{700}}) {
    const auto x = random<tensor<TestType, 2>>({5, n}, static_cast<unsigned>(n), 3);
    for (const double alpha : {1.0, 1.1, 1.5, 2.0, 3.0}) {
      INFO("n = " << n << ", alpha = " << alpha);
      CHECK(agrees(entmax(x, alpha)));
    }
  }
  const auto one = evaluate(entmax(random<tensor<TestType, 2>>({3, 1}, 5, 100)));
  CHECK(std::all_of(one.data(), one.data() + 3, [](TestType v) { return v == 1; }));
  const tensor<TestType, 2> ties({1, 4}, std::array<TestType, 4>{3, 3, -100, 3});
  const auto third = evaluate(entmax(ties));
  CHECK(third(0, 2) == 0);
  CHECK(third(0, 0) == third(0, 3));
  CHECK_THROWS_WITH(evaluate(entmax(ties, 0.5)), "[entmax] alpha is 0.5 and must be at least 1");
}

TEST_CASE("entmax of extreme rows", "[gate]") {
  const tensor<float, 2> x(
      {5, 3}, std::array{1e30f, -1e30f, 0.f, -infinity, -infinity, -infinity, NAN, 0.f, 1.f,
                         infinity, 0.f, 1.f, -infinity, 2.f, 2.f});
  for (const double alpha : {1.25, 1.5, 2.0}) {
    const auto y = evaluate(entmax(x, alpha));
    CHECK(y(0, 0) == 1);
    CHECK(y(0, 2) == 0);
    for (extent t = 1; t < 4; ++t)
      for (extent n = 0; n < 3; ++n) CHECK(std::isnan(y(t, n)));
    CHECK(y(4, 0) == 0);
    CHECK(std::abs(y(4, 1) - 0.5f) < 1e-6f);
  }
}

TEMPLATE_TEST_CASE("layer norm, RMS norm, and norms", "[gate]", float, double) {
  for (const extent n : {extent{1}, extent{7}, extent{8}, extent{100}}) {
    const auto x = random<tensor<TestType, 3>>({5, 3, n}, static_cast<unsigned>(n), 3);
    INFO("n = " << n);
    CHECK(agrees(layer_norm(x)));
    CHECK(agrees(rms_norm(x)));
    CHECK(agrees(rms_norm(x, 0.5)));
    CHECK(agrees(clamped_rms_norm(x)));
    CHECK(agrees(clamped_rms_norm(x, 10)));
    CHECK(agrees(mean(x)));
    CHECK(agrees(x - einsum<"tp,n->tpn">(mean(x), tensor<TestType, 1>({n}))));
    for (const row_norm which : {row_norm::l1, row_norm::l2, row_norm::max})
      CHECK(agrees(norm(which, x)));
    CHECK(agrees(
        einsum<"tp,po->to">(norm(row_norm::l2, x), random<parameter<TestType, 2>>({3, 4}, 3))));
    CHECK(agrees(norm(row_norm::l1, einsum<"tpn->tnp">(x))));
  }
  const tensor<TestType, 2> zeros({2, 5});
  for (const auto& y : {evaluate(rms_norm(zeros)), evaluate(clamped_rms_norm(zeros))})
    CHECK(std::ranges::all_of(y, [](TestType v) { return v == 0; }));
}

TEMPLATE_TEST_CASE("repeat makes a row of each number", "[gate]", float, double) {
  const auto x = random<tensor<TestType, 2>>({5, 7}, 1);
  const auto y = evaluate(repeat(x, 3));
  REQUIRE(y.shape() == std::array<extent, 3>{5, 7, 3});
  for (extent k = 0; k < y.size(); ++k) CHECK(y.data()[k] == x.data()[k / 3]);
  CHECK(agrees(x - repeat(mean(x), 7)));
  CHECK(evaluate(repeat(x, 0)).size() == 0);
  CHECK(evaluate(repeat(random<parameter<TestType, 1>>({4}, 2), 2)).shape() ==
        std::array<extent, 2>{4, 2});
  CHECK_THROWS_AS(evaluate(x - repeat(mean(x), 6)), shape_error);
}

TEST_CASE("a norm of many floats is as exact as one of few", "[gate]") {
  tensor<float, 2> x({1, 1 << 20});
  std::fill_n(x.data(), x.size(), 0.1f);
  CHECK(evaluate(norm(row_norm::l1, x))(0) ==
        static_cast<float>(static_cast<double>(0.1f) * (1 << 20)));
}

TEMPLATE_TEST_CASE("bounded softmax keeps what reaches the bound or the maximum", "[gate]", float,
                   double) {
  const auto x = random<tensor<TestType, 3>>({7, 3, 40}, 1);
  const auto fixed = random<parameter<TestType, 1>>({3}, 2);
  CHECK(agrees(bounded_softmax(x, fixed)));
  CHECK(agrees(bounded_softmax(x, random<tensor<TestType, 2>>({7, 3}, 3))));
  CHECK(agrees(bounded_softmax(x, fixed + 100)));
  const tensor<TestType, 2> ties({1, 4}, std::array<TestType, 4>{2, 3, 3, 1});
  const tensor<TestType, 1> high({1}, std::array<TestType, 1>{5});
  const auto y = evaluate(bounded_softmax(ties, high));
  CHECK(y(0, 0) == 0);
  CHECK(y(0, 1) == TestType(0.5));
  CHECK(y(0, 2) == TestType(0.5));
}

TEMPLATE_TEST_CASE("weights of the kept scores", "[gate]", float, double) {
  const auto x = random<tensor<TestType, 2>>({11, 90}, 1);
  const auto w = random<parameter<TestType, 2>>({90, 7}, 2);
  for (const auto weights :
       {weighting::score, weighting::softmax, weighting::softmax_of_all, weighting::one}) {
    for (const extent k : {extent{0}, extent{1}, extent{31}, extent{90}, all}) {
      INFO("k = " << k);
      CHECK(agrees(top_k(x, k, weights)));
      CHECK(agrees(einsum<"tn,no->to">(top_k(x, k, weights), w)));
    }
    for (const double mass : {0.0, 0.05, 0.6, 1.0}) {
      INFO("mass = " << mass);
      CHECK(agrees(top_p(x, mass, weights)));
      CHECK(agrees(einsum<"tn,no->to">(top_p(x, mass, weights), w)));
    }
  }
  CHECK_THROWS_AS(evaluate(top_p(x, 1.5, weighting::softmax)), value_error);
}

TEMPLATE_TEST_CASE("weights of scores that other numbers rank", "[gate]", float, double) {
  const auto scores = evaluate(sigmoid(random<tensor<TestType, 2>>({11, 90}, 1)));
  auto ranked = random<tensor<TestType, 2>>({11, 90}, 3);
  for (extent n = 0; n < 90; n += 3) ranked(2, n) = 0;  // equal ones
  for (extent n = 0; n < 90; ++n) ranked(3, n) = n == 40 ? TestType(NAN) : 1;
  const auto w = random<parameter<TestType, 2>>({90, 7}, 2);
  for (const auto weights : {weighting::score, weighting::softmax, weighting::softmax_of_all,
                             weighting::one, weighting::normalized})
    for (const extent k : {extent{0}, extent{1}, extent{31}, extent{89}, extent{90}, all}) {
      INFO("k = " << k << ", weighting " << static_cast<int>(weights));
      CHECK(agrees(top_k(scores, ranked, k, weights)));
      CHECK(agrees(einsum<"tn,no->to">(top_k(scores, ranked, k, weights), w)));
      CHECK(agrees(top_k(scores, k, weights)));
      CHECK(agrees(top_k(einsum<"to,no->tn">(einsum<"tn,no->to">(scores, w), w), ranked, k,
                         weighting::one)));
    }
  CHECK(agrees(top_p(scores, 0.3, weighting::normalized)));
  // A score of 0 has a share of a softmax, and none of a sum; a sum of 0 makes no NaN.
  const tensor<TestType, 2> x({2, 3}, std::array<TestType, 6>{0, 5, 2, 0, 0, 0}),
      by({2, 3}, std::array<TestType, 6>{3, 1, 2, 1, 2, 3});
  CHECK(evaluate(top_k(x, by, 2, weighting::softmax))(0, 0) > 0);
  const auto shares = evaluate(top_k(x, by, 2, weighting::normalized));
  CHECK(shares(0, 2) == 1);
  CHECK(shares(1, 2) == 0);
  CHECK_THROWS_AS(evaluate(top_k(x, tensor<TestType, 2>({2, 4}), 1)), shape_error);
}

TEMPLATE_TEST_CASE("the best groups of a row keep their entries", "[gate]", float, double) {
  auto x = random<tensor<TestType, 2>>({9, 24}, 1);
  for (extent n = 0; n < 24; ++n) x(2, n) = 1;  // equal groups
  x(3, 20) = NAN;
  const auto is_kept = [](TestType v) { return !(std::isinf(v) && v < 0); };
  using enum group_score;
  for (const extent groups : {extent{1}, extent{2}, extent{8}, extent{24}})
    for (const auto& [active, score] : {std::pair{extent{1}, sum_of_two},
                                        {groups / 2, sum_of_two},
                                        {groups, sum_of_two},
                                        {extent{1}, greatest},
                                        {groups / 2, greatest}}) {
      if (active == 0) continue;
      INFO(active << " of " << groups << " groups");
      const auto y = evaluate(best_groups(x, groups, active, score)),
                 again = evaluate(best_groups(x, groups, active, score), {.on = reference()});
      for (extent t = 0; t < 9; ++t) {
        CHECK(std::ranges::count_if(std::span(&y(t, 0), 24), is_kept) ==
              static_cast<std::ptrdiff_t>(active * 24 / groups));
        for (extent n = 0; n < 24; ++n)
          CHECK((is_kept(y(t, n)) ? y(t, n) == x(t, n) || std::isnan(x(t, n)) : true));
        for (extent n = 0; n < 24; ++n) CHECK(is_kept(y(t, n)) == is_kept(again(t, n)));
      }
      CHECK(is_kept(y(2, 0)));   // the first of equal groups
      CHECK(is_kept(y(3, 20)));  // NaN is the greatest
      const auto finite = random<tensor<TestType, 2>>({9, 24}, 2);
      CHECK(agrees(softmax(best_groups(1 - finite, groups, active, score))));
    }
  const tensor<TestType, 2> two({1, 6}, std::array<TestType, 6>{9, 0, 0, 5, 5, 0});
  const auto best = evaluate(best_groups(two, 2, 1));  // 9 + 0 is less than 5 + 5
  CHECK(!is_kept(best(0, 0)));
  CHECK(best(0, 3) == 5);
  CHECK(evaluate(best_groups(two, 2, 1, greatest))(0, 0) == 9);
  CHECK_THROWS_AS(evaluate(best_groups(x, 5, 1)), value_error);
  CHECK_THROWS_AS(evaluate(best_groups(x, 8, 9)), value_error);
  CHECK_THROWS_AS(evaluate(best_groups(x, 8, 0)), value_error);
  CHECK_THROWS_AS(evaluate(best_groups(tensor<TestType, 2>({1, 130}), 65, 1)), value_error);
}

TEMPLATE_TEST_CASE("the greatest entry of each group is kept", "[gate]", float, double) {
  auto x = random<tensor<TestType, 2>>({9, 24}, 1);
  for (extent n = 0; n < 24; ++n) x(2, n) = 1;  // equal entries
  x(3, 20) = NAN;
  for (const extent groups : {extent{1}, extent{2}, extent{8}, extent{24}}) {
    INFO(groups << " groups");
    const auto y = evaluate(group_max(x, groups)),
               again = evaluate(group_max(x, groups), {.on = reference()});
    const extent each = 24 / groups;
    for (extent t = 0; t < 9; ++t)
      for (extent at = 0; at < 24; at += each) {
        const std::span group(&x(t, at), each);
        const auto greatest = [&] {
          const auto nan = std::ranges::find_if(group, [](TestType v) { return std::isnan(v); });
          return nan == group.end() ? std::ranges::max_element(group) : nan;
        }();
        const auto best = static_cast<extent>(greatest - group.begin());
        for (extent i = 0; i < each; ++i) {
          const bool is_kept = !std::isinf(y(t, at + i));
          CHECK(is_kept == (i == best));
          CHECK(is_kept == !std::isinf(again(t, at + i)));
          if (is_kept && !std::isnan(*greatest)) CHECK(y(t, at + i) == *greatest);
        }
      }
    const auto finite = random<tensor<TestType, 2>>({9, 24}, 2);
    CHECK(agrees(softmax(group_max(1 - finite, groups))));
    CHECK(agrees(top_k(finite, group_max(finite, groups), groups)));
  }
  for (const extent groups : {extent{0}, extent{5}, extent{25}})
    CHECK_THROWS_AS(evaluate(group_max(x, groups)), value_error);
}

TEMPLATE_TEST_CASE("a sparse mixer weighs two entries among those beside them", "[gate]", float,
                   double) {
  const auto x = random<tensor<TestType, 2>>({40, 16}, 1);
  for (const double jitter : {0., 0.01, 0.2, 0.5, 0.9}) {  // 0.9: entries far below 0 take part
    INFO(jitter);
    for (const compile_options& options : {compile_options{}, compile_options{.on = reference()}}) {
      CHECK(agrees(sparse_mixer(x, jitter), options));
      CHECK(agrees(sparse_mixer(5 * x - 20, jitter), options));
      CHECK(agrees(sparse_mixer(random<tensor<TestType, 3>>({5, 3, 7}, 2), jitter), options));
      CHECK(agrees(sparse_mixer(random<parameter<TestType, 1>>({2}, 3), jitter), options));
      CHECK(agrees(sparse_mixer(random<parameter<bf16, 2>>({9, 11}, 4), jitter), options));
    }
    CHECK(std::ranges::equal(evaluate(top_k(sparse_mixer(x, jitter), x, 2)),
                             evaluate(sparse_mixer(x, jitter))));
  }
  CHECK_THROWS_AS(evaluate(sparse_mixer(x, -0.01)), value_error);
  CHECK_THROWS_AS(evaluate(sparse_mixer(x, 1)), value_error);
  CHECK_THROWS_AS(evaluate(sparse_mixer(x, NAN)), value_error);
  CHECK_THROWS_AS(evaluate(sparse_mixer(tensor<TestType, 2>({3, 1}))), value_error);
}

TEST_CASE("of equal entries a sparse mixer weighs the first two; NaN and infinity make NaN",
          "[gate]") {
  const float near = 1 / (1 + std::exp(-0.01f)), second = 1 / (1 + std::exp(-0.015f));
  const std::pair<std::array<float, 4>, std::array<float, 4>> rows[] = {
      {{0.99f, -3, 1, 0.975f}, {second, 0, near, 0}},
      {{-1.01f, -1, -5, -1.025f}, {second, near, 0, 0}},
      {{2, 2, 2, 2}, {1 / 4.f, 1 / 3.f, 0, 0}},
      {{0, -1, -0.f, -1}, {0.5f, 0, 1, 0}},
      {{-infinity, 1, -infinity, 2}, {0, 1, 0, 1}},
      {{-infinity, 1, -infinity, -infinity}, {NAN, NAN, NAN, NAN}},
      {{1, 2, infinity, 3}, {NAN, NAN, NAN, NAN}},
      {{1, 2, 3, NAN}, {NAN, NAN, NAN, NAN}}};
  for (const auto& [x, expected] : rows)
    for (const compile_options& options : {compile_options{}, compile_options{.on = reference()}}) {
      const auto y = evaluate(sparse_mixer(tensor<float, 2>({1, 4}, x)), options);
      CAPTURE(x, expected, y(0, 0), y(0, 1), y(0, 2), y(0, 3));
      for (extent n = 0; n < 4; ++n)
        CHECK((std::isnan(expected[n]) ? std::isnan(y(0, n))
                                       : std::abs(y(0, n) - expected[n]) < 1e-6f));
    }
}

TEMPLATE_TEST_CASE("no row depends on the precision of the x87 unit", "[gate]", float, double) {
  const auto x = random<tensor<TestType, 2>>({40, 37}, 1, 3);
  const auto y = at_both_precisions([&] {
    return std::array{evaluate(sparse_mixer(x, 0.2)), evaluate(entmax(x, 1.3)),
                      evaluate(softmax(x)), evaluate(top_k(x, 5, weighting::softmax))};
  });
  for (extent i = 0; i < y[0].size(); ++i) CHECK(std::ranges::equal(y[0][i], y[1][i]));
}

TEST_CASE(
    "a selected score of zero has its share of the softmax; of equal masses the lower index stays",
    "[gate]") {
  const tensor<float, 2> x({1, 4}, std::array{0.f, -1.f, 0.f, -2.f});
  CHECK(evaluate(top_k(x, 2, weighting::softmax))(0, 2) == 0.5f);
  const tensor<float, 2> equal({1, 4});
  const auto half = evaluate(top_p(equal, 0.5, weighting::softmax));
  CHECK(half(0, 0) == 0.5f);
  CHECK(half(0, 1) == 0.5f);
  CHECK(half(0, 2) == 0);
}

TEST_CASE("threshold keeps what reaches the bound", "[gate]") {
  const tensor<float, 1> x({5}, std::array{0.5f, 0.49f, -1.f, infinity, NAN});
  const auto y = evaluate(threshold(x, 0.5));
  CHECK(y(0) == 0.5f);
  CHECK(y(1) == 0);
  CHECK(y(2) == 0);
  CHECK(y(3) == infinity);
  CHECK(std::isnan(y(4)));
}

}  // namespace
