// SPDX-License-Identifier: MIT
// Compares correlations of experts with means and deviations of the s^2 coefficients of every
// token.
#include <cstring>
#include <random>

#include <fmoe/analysis/expert_correlation.hpp>

#include "../support/catch.hpp"
#include "../support/monet.hpp"
#include "../support/routing.hpp"
#include "../support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

std::vector<double> random_scores(extent tokens, unsigned seed, double mean = 0) {
  std::mt19937 bits(seed);
  std::vector<double> y(tokens);
  for (double& v : y) v = mean + static_cast<double>(bits() % 1000) / 256;
  return y;
}

double mean(const std::vector<long double>& v) {
  long double sum = 0;
  for (const long double x : v) sum += x;
  return static_cast<double>(sum / static_cast<long double>(v.size()));
}

// Pearson's correlation, in two passes.
double plain(std::vector<long double> q, std::vector<long double> y) {
  const long double q0 = mean(q), y0 = mean(y);
  long double qq = 0, yy = 0, qy = 0;
  for (extent t = 0; t < q.size(); ++t) {
    qq += (q[t] - q0) * (q[t] - q0);
    yy += (y[t] - y0) * (y[t] - y0);
    qy += (q[t] - q0) * (y[t] - y0);
  }
  return qq == 0 || yy == 0 ? 0 : static_cast<double>(qy / std::sqrt(qq * yy));
}

template <class T>
double largest_error(const expert_correlation& c, const tensor<T, 3>& g1, const tensor<T, 3>& g2,
                     const std::vector<double>& y) {
  const extent s = g1.shape()[2];
  const auto all = c.correlations();
  double error = 0;
  for (extent i = 0; i < s; ++i)
    for (extent j = 0; j < s; ++j) {
      std::vector<long double> q;
      for (extent t = 0; t < y.size(); ++t) q.push_back(coefficient(g1, g2, t, i, j));
      error = std::max(error, std::abs(all(i, j) - plain(q, {y.begin(), y.end()})));
      CHECK(all(i, j) == c.correlation({i, j}));
    }
  return error;
}

bool same_bits(const expert_correlation& a, const expert_correlation& b) {
  const auto x = a.correlations(), y = b.correlations();
  return std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

TEMPLATE_TEST_CASE("correlations are those of every token's coefficients", "[expert_correlation]",
                   float, double) {
  const extent s = 20;
  for (const double offset : {0.0, -3.0, 1e9})
    for (const extent kept : std::array<extent, 3>{1, 4, 20}) {
      const auto g1 = random_routing<TestType>({150, 3, s}, 1, kept),
                 g2 = random_routing<TestType>({150, 3, s}, 2, kept);
      const auto y = random_scores(150, 3, offset);
      expert_correlation c(s);
      c.add(g1, g2, y);
      CAPTURE(offset, kept);
      CHECK(c.tokens() == 150);
      CHECK(largest_error(c, g1, g2, y) < 1e-13);
    }
}

TEST_CASE("scores of float are those of double", "[expert_correlation]") {
  const auto g1 = random_routing<float>({50, 2, 9}, 1, 3),
             g2 = random_routing<float>({50, 2, 9}, 2, 3);
  const auto y = random_scores(50, 3);
  const std::vector<float> narrow(y.begin(), y.end());
  expert_correlation a(9), b(9);
  a.add(g1, g2, y);
  b.add(g1, g2, narrow);
  CHECK(same_bits(a, b));
}

TEST_CASE("the bits of correlations do not depend on batches and threads", "[expert_correlation]") {
  const extent s = 40, tokens = 301;
  auto y = random_scores(tokens, 3, 0.1);
  for (double& v : y) v /= 7;
  for (const extent kept : std::array<extent, 2>{3, 40}) {
    const auto g1 = rounded_routing<float>({tokens, 4, s}, 1, kept),
               g2 = rounded_routing<float>({tokens, 4, s}, 2, kept);
    expert_correlation once(s);
    once.add(g1, g2, y);
    for (const extent batch : std::array<extent, 4>{1, 7, 128, 300})
      for (const int threads : {1, 2, 7})
        on_threads(threads, [&] {
          expert_correlation stream(s);
          stream.add(some_tokens(g1, 0, 0), some_tokens(g2, 0, 0), std::span<const double>());
          for (extent t = 0; t < tokens; t += batch) {
            const extent count = std::min<extent>(batch, tokens - t);
            stream.add(some_tokens(g1, t, count), some_tokens(g2, t, count),
                       std::span<const double>(y).subspan(t, count));
          }
          CHECK(same_bits(stream, once));
        });
  }
}

TEST_CASE("an expert that goes with the score, one against it, and what is constant",
          "[expert_correlation]") {
  const extent tokens = 1000, s = 20;
  tensor<float, 3> g1({tokens, 1, s}), g2({tokens, 1, s});
  const auto y = random_scores(tokens, 3);
  for (extent t = 0; t < tokens; ++t) {
    g1(t, 0, 0) = g1(t, 0, 1) = g1(t, 0, 2) = 1;
    g2(t, 0, 0) = static_cast<float>(y[t]);
    g2(t, 0, 1) = static_cast<float>(4 - y[t]);
    g2(t, 0, 2) = 0.1f;
    g1(t, 0, 2) = 0.3f;
  }
  expert_correlation c(s);
  CHECK(c.correlation({0, 0}) == 0);
  const expert_correlation before = c;
  c.add(g1, g2, y);
  CHECK(before.correlation({0, 0}) == 0);
  CHECK(std::abs(c.correlation({0, 0}) - 1) < 1e-14);
  CHECK(c.correlation({0, 0}) <= 1);
  CHECK(std::abs(c.correlation({1, 1}) + 1) < 1e-14);
  CHECK(c.correlation({1, 1}) >= -1);
  CHECK(c.correlation({2, 2}) == 0);  // a tenth of three tenths each time, whose sums are rounded
  CHECK(c.correlation({5, 5}) == 0);

  expert_correlation constant(s);
  constant.add(g1, g2, std::span<const double>(std::vector<double>(tokens, 0.1)));
  for (extent j = 0; j < 4; ++j) CHECK(constant.correlation({0, j}) == 0);
  CHECK(constant.experts_above(0).empty());
}

TEST_CASE("experts above a threshold", "[expert_correlation]") {
  const auto g1 = random_routing<float>({100, 2, 8}, 1, 2),
             g2 = random_routing<float>({100, 2, 8}, 2, 2);
  const auto y = random_scores(100, 3);
  expert_correlation c(8);
  c.add(g1, g2, y);
  const auto all = c.correlations();
  for (const double threshold : {-2.0, 0.0, 0.05, 0.1, 0.2, all(3, 4), 1.0}) {
    std::vector<index_pair> expected;
    for (extent i = 0; i < 8; ++i)
      for (extent j = 0; j < 8; ++j)
        if (all(i, j) > threshold) expected.push_back({i, j});
    CHECK(c.experts_above(threshold) == expected);
  }
  CHECK(c.experts_above(0.1).size() > 1);
}

TEST_CASE("a layer without the experts that go with a score", "[expert_correlation]") {
  const monet_sizes n{.t = 60, .d = 10, .p = 2, .s = 7, .m = 4};
  auto layer = random_hd<float>(n, 3);
  monet_router<float> router;
  router.keys1 = random<parameter<float, 2>>({n.d, n.p * n.s}, 1);
  router.keys2 = random<parameter<float, 2>>({n.d, n.p * n.s}, 2);
  router.heads = n.p;
  router.active = 3;
  const auto x = random<tensor<float, 2>>({n.t, n.d}, 20);
  const std::vector<double> toxicity = random_scores(n.t, 3);

  expert_correlation correlation(n.s);
  correlation.add(evaluate(router.g1(x)), evaluate(router.g2(x)), toxicity);
  layer.deleted = correlation.experts_above(0.2);

  CHECK(layer.deleted.size() > 1);
  CHECK(layer.deleted.size() < 20);
  const auto g1 = evaluate(router.g1(x)), g2 = evaluate(router.g2(x));
  const auto y = evaluate(layer(x, g1, g2));
  CHECK(relative_error(y.data(), output(layer, x, g1, g2)) < 1e-5);
}

TEST_CASE("scores that are none change nothing", "[expert_correlation]") {
  const tensor<float, 3> g({3, 1, 2}, {1, 2, 3, 4, 5, 6});
  expert_correlation c(2);
  const auto add = [&](const tensor<float, 3>& g2, const std::vector<double>& y) {
    c.add(g, g2, y);
  };
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(), -1.1e100})
    CHECK_THROWS_WITH(add(g, {1, bad, 2}), containing("the score of token 1 is"));
  CHECK_THROWS_AS(add(g, {1, std::numeric_limits<double>::quiet_NaN(), 2}), value_error);
  CHECK_THROWS_AS(add(g, {1, 2}), shape_error);
  CHECK_THROWS_AS(add(tensor<float, 3>({3, 1, 3}), {1, 2, 3}), shape_error);
  auto broken = some_tokens(g, 0, 3);
  broken(2, 0, 1) = std::numeric_limits<float>::infinity();
  CHECK_THROWS_AS(add(broken, {1, 2, 3}), value_error);
  CHECK_THROWS_AS(c.correlation({2, 0}), value_error);
  CHECK_THROWS_AS(c.correlation({0, 2}), value_error);
  CHECK(c.tokens() == 0);
  add(g, {1e100, -1e100, 0});
  CHECK(std::isfinite(c.correlation({1, 1})));
  expert_correlation fresh(2);
  fresh.add(g, g, std::span<const double>(std::vector<double>{1e100, -1e100, 0}));
  CHECK(same_bits(c, fresh));
}

}  // namespace
