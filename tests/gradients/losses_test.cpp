// SPDX-License-Identifier: MIT
// Each loss and its gradient beside the formula written out in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include <fmoe/gradients.hpp>
#include <fmoe/losses.hpp>
#include <fmoe/moe.hpp>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent tokens = 9, outputs = 5, experts = 7, heads = 2, halves = 6;

using rows = tensor<double, 2>;
using routing_rows = tensor<double, 3>;

double square(double x) { return x * x; }

// The value of a loss, the mean of one of each token.
template <expression L>
double value_of(const L& loss) {
  const auto made = evaluate(loss);
  double sum = 0;
  for (extent i = 0; i < made.size(); ++i) sum += made.data()[i];
  return sum / static_cast<double>(made.size());
}

// The gradient of that value.
template <expression L, class X>
X slope_of(const L& loss, const X& x) {
  if constexpr (L::rank == 0) {
    return evaluate(gradient(loss, x));
  } else {
    tensor<double, 1> each({tokens});
    std::fill_n(each.data(), tokens, 1. / tokens);
    return evaluate(gradient(loss, x, each));
  }
}

// Compares a loss and its gradient with respect to x with the formula, whose value follows x.
template <expression L, class X>
void expect_loss(const L& loss, X& x, const std::function<double()>& formula) {
  const double expected = formula();
  CHECK(value_of(loss) == Approx(expected).epsilon(1e-12));
  const X made = slope_of(loss, x);
  const X at = x;
  double greatest = 0, worst = 0;
  for (extent i = 0; i < x.size(); ++i) {
    constexpr double h = 1e-5;
    const double before = at.data()[i];
    x.data()[i] = before + h;
    const double above = formula();
    x.data()[i] = before - h;
    const double below = formula();
    x.data()[i] = before;
    const double slope = (above - below) / (2 * h);
    greatest = std::max(greatest, std::abs(slope));
    worst = std::max(worst, std::abs(slope - made.data()[i]));
  }
  CHECK(greatest > 0);
  CHECK(worst <= 1e-7 * (1 + greatest));
}

double mean_of_tokens(const std::function<double(extent)>& f) {
  double sum = 0;
  for (extent t = 0; t < tokens; ++t) sum += f(t);
  return sum / tokens;
}

std::vector<double> softmax_of(const rows& s, extent t) {
  std::vector<double> p(experts);
  double most = s(t, 0), sum = 0;
  for (extent n = 0; n < experts; ++n) most = std::max(most, s(t, n));
  for (extent n = 0; n < experts; ++n) sum += p[n] = std::exp(s(t, n) - most);
  for (double& x : p) x /= sum;
  return p;
}

// Probabilities [t, p, s], of which a row keeps some.
routing_rows routing_of(unsigned seed) {
  routing_rows g = random<routing_rows>({tokens, heads, halves}, seed);
  for (extent r = 0; r < tokens * heads; ++r) {
    double* const row = g.data() + r * halves;
    double sum = 0;
    for (extent i = 0; i < halves; ++i) {
      row[i] = (r + i) % 3 == 0 ? 0 : 0.1 + std::abs(row[i]);
      sum += row[i];
    }
    for (extent i = 0; i < halves; ++i) row[i] /= sum;
  }
  return g;
}

double uniformity_of(const routing_rows& g, double floor) {
  double sum = 0;
  for (extent p = 0; p < heads; ++p)
    for (extent i = 0; i < halves; ++i)
      sum += std::log(std::max(mean_of_tokens([&](extent t) { return g(t, p, i); }), floor));
  return sum / (heads * halves);
}

double greatest_of(const routing_rows& g, extent t) {
  double sum = 0;
  for (extent p = 0; p < heads; ++p) {
    double most = 0;
    for (extent i = 0; i < halves; ++i) most = std::max(most, g(t, p, i));
    sum += most;
  }
  return sum / heads;
}

TEST_CASE("losses of the reconstruction", "[losses]") {
  rows y = random<rows>({tokens, outputs}, 1);
  const rows d = random<rows>({tokens, outputs}, 2);
  const auto error = [&](extent t) {
    double sum = 0;
    for (extent o = 0; o < outputs; ++o) sum += square(y(t, o) - d(t, o));
    return sum;
  };
  const auto size = [&](extent t) {
    double sum = 0;
    for (extent o = 0; o < outputs; ++o) sum += square(d(t, o));
    return sum;
  };
  const auto mean_of = mean_of_tokens;
  expect_loss(losses::mse(y, d), y,
              [&] { return mean_of([&](extent t) { return error(t) / outputs; }); });
  expect_loss(losses::nmse(y, d), y,
              [&] { return mean_of([&](extent t) { return error(t) / size(t); }); });
  expect_loss(losses::normalized_error(y, d), y,
              [&] { return mean_of([&](extent t) { return error(t) / std::sqrt(size(t)); }); });
  expect_loss(losses::authors_mse(y, d), y, [&] {
    return mean_of([&](extent t) { return error(t) / outputs / std::sqrt(size(t)); });
  });
  double variance = 0;
  for (extent o = 0; o < outputs; ++o) {
    const double mean = mean_of([&](extent t) { return d(t, o); });
    variance += tokens * mean_of([&](extent t) { return square(d(t, o) - mean); });
  }
  expect_loss(losses::fvu(y, d), y, [&] { return tokens * mean_of(error) / variance; });
}

TEST_CASE("Monet's uniformity is of probabilities that were averaged first", "[losses]") {
  routing_rows g1 = routing_of(3), g2 = routing_of(4);
  const auto formula = [&] { return -(uniformity_of(g1, 1e-10) + uniformity_of(g2, 1e-10)) / 2; };
  expect_loss(losses::uniformity(g1, g2), g1, formula);
  expect_loss(losses::uniformity(g1, g2), g2, formula);
  for (extent t = 0; t < tokens; ++t) g1(t, 1, 2) = 0;
  expect_loss(losses::uniformity(g1, g2, 1e-3), g1,
              [&] { return -(uniformity_of(g1, 1e-3) + uniformity_of(g2, 1e-3)) / 2; });
}

// Table 7 of the paper prints 6.262 to 6.433 for 512 keys.
TEST_CASE("Monet's uniformity is log s at least", "[losses]") {
  constexpr extent s = 512, many = 1024;
  tensor<float, 3> once({many, 1, s}), some = once;
  for (extent t = 0; t < many; ++t) {
    once(t, 0, t % s) = 1;  // a token has one key, and all keys have as many tokens
    some(t, 0, t % s / 2) = 1;
  }
  const auto loss = [](const auto& g) { return *evaluate(losses::uniformity(g, g)).data(); };
  CHECK(loss(once) == Approx(std::log(512.)).epsilon(1e-6));
  CHECK(std::abs(loss(once) - 6.238) < 5e-4);
  CHECK(loss(some) > 10);  // half of the keys are not used
  tensor<float, 3> skewed = once;
  for (extent t = 0; t < many; ++t) skewed(t, 0, 0) = 0.1F;
  CHECK(loss(skewed) < loss(some));
}

TEST_CASE("Monet's ambiguity", "[losses]") {
  routing_rows g1 = routing_of(5), g2 = routing_of(6);
  const auto formula = [&] {
    return 1 -
           mean_of_tokens([&](extent t) { return (greatest_of(g1, t) + greatest_of(g2, t)) / 2; });
  };
  expect_loss(losses::ambiguity(g1, g2), g1, formula);
  expect_loss(losses::ambiguity(g1, g2), g2, formula);
}

TEST_CASE("losses of a router's scores", "[losses]") {
  rows s = evaluate(4.0 * random<rows>({tokens, experts}, 7));
  const auto log_sum = [&](extent t) {
    double sum = 0;
    for (extent n = 0; n < experts; ++n) sum += std::exp(s(t, n));
    return std::log(sum);
  };
  expect_loss(losses::router_z(s), s,
              [&] { return mean_of_tokens([&](extent t) { return square(log_sum(t)); }); });
  expect_loss(losses::entropy(s), s, [&] {
    return mean_of_tokens([&](extent t) {
      double sum = 0;
      for (const double p : softmax_of(s, t)) sum -= p * std::log(p);
      return sum;
    });
  });
  const rows a = evaluate(top_k(s, 2, weighting::softmax));
  expect_loss(losses::load_balance(a, s), s, [&] {
    double sum = 0;
    for (extent n = 0; n < experts; ++n) {
      const double f = mean_of_tokens([&](extent t) { return a(t, n) != 0 ? 1. : 0.; });
      sum += f * mean_of_tokens([&](extent t) { return softmax_of(s, t)[n]; });
    }
    return experts * sum;
  });
}

TEST_CASE("losses of scores are finite where probabilities are 0", "[losses]") {
  rows s = random<rows>({tokens, experts}, 8);
  for (extent t = 0; t < tokens; ++t) {
    s(t, 0) = 2000;
    s(t, 1) = -INFINITY;
    s(t, 2) = 0;
  }
  CHECK(value_of(losses::router_z(s)) == Approx(square(2000)).epsilon(1e-12));
  CHECK(value_of(losses::entropy(s)) == Approx(0).margin(1e-12));
  const rows none({tokens, experts});  // a router at its start, without weights
  CHECK(value_of(losses::router_z(none)) == Approx(square(std::log(7.))).epsilon(1e-12));
  const rows slope = slope_of(losses::router_z(none), none);
  for (const double d : {slope(0, 0), slope(4, 6)})
    CHECK(d == Approx(2 * std::log(7.) / 7 / tokens).epsilon(1e-12));
  const rows of_great = slope_of(losses::router_z(s), s);
  CHECK(of_great(0, 0) == Approx(2 * 2000. / tokens).epsilon(1e-12));
  CHECK(of_great(0, 1) == 0);
}

TEST_CASE("L1 of coefficients", "[losses]") {
  rows a = random<rows>({tokens, experts}, 9);
  const tensor<double, 1> w = random<tensor<double, 1>>({experts}, 10);
  const auto sum = [&](extent t, bool weighted) {
    double total = 0;
    for (extent n = 0; n < experts; ++n) total += std::abs(a(t, n)) * (weighted ? w(n) : 1);
    return total;
  };
  expect_loss(losses::l1(a), a,
              [&] { return mean_of_tokens([&](extent t) { return sum(t, false); }); });
  expect_loss(losses::l1(a, w), a,
              [&] { return mean_of_tokens([&](extent t) { return sum(t, true); }); });
}

TEST_CASE("AuxK gives what is left to the dead units", "[losses]") {
  rows y = random<rows>({tokens, outputs}, 11), decoder = random<rows>({experts, outputs}, 12),
       units = evaluate(abs(random<rows>({tokens, experts}, 13)));
  const rows target = random<rows>({tokens, outputs}, 14);
  tensor<double, 1> dead({experts});
  for (const extent n : std::array<extent, 4>{1, 3, 4, 6}) dead(n) = 1;
  const rows left = evaluate(target - y);  // is held
  const auto formula = [&] {
    return mean_of_tokens([&](extent t) {
      std::vector<extent> best;
      for (extent n = 0; n < experts; ++n)
        if (dead(n) != 0) best.push_back(n);
      std::ranges::sort(best, [&](extent a, extent b) { return units(t, a) > units(t, b); });
      double sum = 0;
      for (extent o = 0; o < outputs; ++o)
        sum += square(units(t, best[0]) * decoder(best[0], o) +
                      units(t, best[1]) * decoder(best[1], o) - left(t, o));
      return sum / outputs;
    });
  };
  const auto loss = losses::auxk(y, target, units, dead, decoder, 2);
  expect_loss(loss, units, formula);
  expect_loss(loss, decoder, formula);
  const rows of_y = slope_of(loss, y);
  for (extent i = 0; i < of_y.size(); ++i) CHECK(of_y.data()[i] == 0);
}

TEST_CASE("a part of an expression is held constant", "[losses]") {
  const rows x = random<rows>({tokens, outputs}, 15), dy = random<rows>({tokens, outputs}, 16);
  const auto y = x * stop_gradient(x);
  const rows made = evaluate(y), slope = evaluate(gradient(y, x, dy));
  for (extent i = 0; i < x.size(); ++i) {
    CHECK(made.data()[i] == square(x.data()[i]));
    CHECK(slope.data()[i] == x.data()[i] * dy.data()[i]);
  }
}

}  // namespace
