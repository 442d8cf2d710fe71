// SPDX-License-Identifier: MIT
#include <fmoe/analysis/expert_correlation.hpp>
#include <fmoe/analysis/expert_domains.hpp>
#include <fmoe/analysis/routed_rows.hpp>

#include "../support/catch.hpp"
#include "../support/routing.hpp"
#include "../support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

struct visited {
  tensor<double, 3> q;                     // t i j
  tensor<double, 3> times;                 // how often j was in the row
  std::vector<std::vector<extent>> order;  // the tokens of each i
};

template <class T>
visited visit(const tensor<T, 3>& g1, const tensor<T, 3>& g2) {
  const auto [tokens, p, s] = g1.shape();
  visited v{tensor<double, 3>({tokens, s, s}), tensor<double, 3>({tokens, s, s}),
            std::vector<std::vector<extent>>(s)};
  routed_rows(g1, g2).each([&](extent i, extent t, const routed_row& row) {
    v.order[i].push_back(t);
    row.each([&](extent j, double q) {
      v.q(t, i, j) = q;
      ++v.times(t, i, j);
    });
  });
  return v;
}

template <class T>
void check(const std::array<extent, 3>& shape, extent kept1, extent kept2) {
  INFO(shape[0] << " tokens, " << shape[1] << " heads, s = " << shape[2] << ", of which " << kept1
                << " and " << kept2 << " are kept");
  const auto g1 = random_routing<T>(shape, 1, kept1), g2 = random_routing<T>(shape, 2, kept2);
  const visited v = visit(g1, g2);
  extent wrong = 0, twice = 0;
  for (extent t = 0; t < shape[0]; ++t)
    for (extent i = 0; i < shape[2]; ++i)
      for (extent j = 0; j < shape[2]; ++j) {
        wrong += v.q(t, i, j) != coefficient(g1, g2, t, i, j);
        twice += v.times(t, i, j) > 1;
      }
  CHECK(wrong == 0);
  CHECK(twice == 0);
  for (const auto& tokens : v.order) {
    CHECK(std::ranges::is_sorted(tokens));
    CHECK(std::ranges::adjacent_find(tokens) == tokens.end());
  }
}

// The sums come from the list of one head, from lists of several heads that share some j, and from
// rows without a list.
TEMPLATE_TEST_CASE("coefficients are the sums over heads, whatever is 0", "[routed_rows]", float,
                   double) {
  for (const extent kept1 : std::array<extent, 4>{0, 1, 3, 40})
    for (const extent kept2 : std::array<extent, 5>{0, 1, 3, 8, 40})
      check<TestType>({9, 5, 40}, kept1, kept2);
  check<TestType>({300, 3, 37}, 2, 2);
  check<TestType>({70, 1, 100}, 50, 12);
  check<TestType>({130, 9, 17}, 2, 1);
  check<TestType>({2, 70, 33}, 1, 1);
  for (const std::array<extent, 3> shape :
       {std::array<extent, 3>{0, 2, 5}, {3, 0, 5}, {3, 2, 0}, {3, 2, 1}})
    check<TestType>(shape, 1, 1);
}

TEST_CASE("coefficients that cancel are those of no head's alone", "[routed_rows]") {
  tensor<float, 3> g1({1, 2, 20}), g2({1, 2, 20});
  g1(0, 0, 7) = 1;
  g1(0, 1, 7) = -2;
  g2(0, 0, 3) = 4;
  g2(0, 1, 3) = 2;
  g2(0, 1, 11) = 5;
  const visited v = visit(g1, g2);
  CHECK(v.q(0, 7, 3) == 0);
  CHECK(v.q(0, 7, 11) == -10);
  CHECK(v.order[7] == std::vector<extent>{0});
  CHECK(v.order[6].empty());
}

TEST_CASE("each i is visited in the tokens' order on any number of threads", "[routed_rows]") {
  const std::array<extent, 3> shape{300, 4, 50};
  const auto g1 = random_routing<float>(shape, 1, 9), g2 = random_routing<float>(shape, 2, 5);
  const visited one = visit(g1, g2);
  for (const int threads : {1, 2, 7})
    on_threads(threads, [&] {
      const visited v = visit(g1, g2);
      CHECK(v.order == one.order);
      CHECK(std::equal(v.q.data(), v.q.data() + v.q.size(), one.q.data()));
    });
}

TEST_CASE("routing of other shapes, or with what is not finite, is refused", "[routed_rows]") {
  const tensor<float, 3> g({40, 2, 21});
  expects_routing(g, g, 21);
  CHECK_THROWS_AS(expects_routing(g, g, 20), shape_error);
  CHECK_THROWS_AS(expects_routing(g, tensor<float, 3>({40, 3, 21}), 21), shape_error);
  CHECK_THROWS_AS(expects_routing(g, tensor<float, 3>({41, 2, 21}), 21), shape_error);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()})
    for (const extent at : {extent{0}, extent{20}, extent{41}, g.size() - 1}) {
      tensor<float, 3> other(g.shape());
      other.data()[at] = bad;
      const auto token = "token " + std::to_string(at / 42) + " ";
      CHECK_THROWS_WITH(expects_finite_routing(other, g), containing(token));
      CHECK_THROWS_WITH(expects_finite_routing(g, other), containing(token));
      CHECK_THROWS_AS(expects_finite_routing(g, other), value_error);
    }
  tensor<double, 3> large({1, 1, 3}, {1e308, -1e308, 1e308});
  expects_finite_routing(large, large);
}

TEST_CASE("two statistics of one pass have the bits of two passes", "[routed_rows]") {
  constexpr extent tokens = 70, s = 21;
  const auto g1 = random_routing<float>({tokens, 3, s}, 1, 6),
             g2 = random_routing<float>({tokens, 3, s}, 2, 6);
  std::vector<extent> domain_of_token(tokens);
  std::vector<double> toxicity(tokens);
  for (extent t = 0; t < tokens; ++t) {
    domain_of_token[t] = t % 2;
    toxicity[t] = static_cast<double>(g1(t, 0, t % s)) + 1e3;
  }
  expert_domains domains(s, 2), domains_alone(s, 2);
  expert_correlation correlation(s), correlation_alone(s);
  add_routing(g1, g2, domains.batch(0), correlation.batch(toxicity));
  add_routing(g1, g2, domains.batch(domain_of_token), correlation.batch(toxicity));
  domains_alone.add(g1, g2, 0);
  domains_alone.add(g1, g2, domain_of_token);
  for (int batch = 0; batch < 2; ++batch) correlation_alone.add(g1, g2, toxicity);
  const auto check_all = [&] {
    CHECK(domains.tokens(1) == tokens / 2);
    CHECK(correlation.tokens() == 2 * tokens);
    extent wrong = 0;
    for (extent i = 0; i < s; ++i)
      for (extent j = 0; j < s; ++j) {
        wrong += correlation.correlation({i, j}) != correlation_alone.correlation({i, j});
        for (const extent d : {extent{0}, extent{1}})
          wrong += domains.mean_probability(d, {i, j}) != domains_alone.mean_probability(d, {i, j});
      }
    CHECK(wrong == 0);
  };
  check_all();
  // What one of them refuses is added to neither.
  toxicity.pop_back();
  CHECK_THROWS_AS(add_routing(g1, g2, domains.batch(1), correlation.batch(toxicity)), shape_error);
  CHECK_THROWS_AS(add_routing(g1, g2, correlation.batch(toxicity), domains.batch(1)), shape_error);
  check_all();
}

}  // namespace
