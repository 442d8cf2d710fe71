// SPDX-License-Identifier: MIT
// Compares the domains of experts with sums over the s^2 coefficients of every token, and checks a
// layer whose experts of a domain are deleted.
#include <random>

#include <fmoe/analysis/expert_domains.hpp>

#include "../support/catch.hpp"
#include "../support/monet.hpp"
#include "../support/routing.hpp"
#include "../support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// The means of all experts and domains, in order.
std::vector<double> means(const expert_domains& d, extent s) {
  std::vector<double> all;
  for (extent n = 0; n < d.domains(); ++n)
    for (extent i = 0; i < s; ++i)
      for (extent j = 0; j < s; ++j) all.push_back(d.mean_probability(n, {i, j}));
  return all;
}

template <class T>
std::vector<double> plain_means(const tensor<T, 3>& g1, const tensor<T, 3>& g2,
                                std::span<const extent> domain_of_token, extent domains) {
  const extent s = g1.shape()[2];
  std::vector<double> all(domains * s * s), tokens(domains);
  for (extent t = 0; t < domain_of_token.size(); ++t) {
    ++tokens[domain_of_token[t]];
    for (extent e = 0; e < s * s; ++e)
      all[domain_of_token[t] * s * s + e] += coefficient(g1, g2, t, e / s, e % s);
  }
  for (extent k = 0; k < all.size(); ++k) all[k] /= tokens[k / (s * s)];
  return all;
}

std::vector<extent> random_domains(extent tokens, extent domains, unsigned seed) {
  std::mt19937 numbers(seed);
  std::vector<extent> all(tokens);
  for (extent& d : all) d = numbers() % domains;
  return all;
}

// Adds one token of one head, which uses only expert (i, j).
void add_token(expert_domains& d, extent domain, index_pair e, float q, extent s) {
  tensor<float, 3> g1({1, 1, s}), g2({1, 1, s});
  g1(0, 0, e[0]) = 1;
  g2(0, 0, e[1]) = q;
  d.add(g1, g2, domain);
}

TEMPLATE_TEST_CASE("mean probabilities are those of every token's coefficients", "[expert_domains]",
                   float, double) {
  const extent s = 23;
  const auto of_token = random_domains(200, 3, 5);
  for (const extent kept : std::array<extent, 3>{2, 5, 23}) {
    const auto g1 = random_routing<TestType>({200, 4, s}, 1, kept),
               g2 = random_routing<TestType>({200, 4, s}, 2, kept);
    expert_domains d(s, 3);
    d.add(g1, g2, of_token);
    CHECK(means(d, s) == plain_means(g1, g2, of_token, 3));
    CHECK(d.tokens(1) == static_cast<extent>(std::ranges::count(of_token, 1)));
  }
}

TEST_CASE("the bits of domains do not depend on batches and threads", "[expert_domains]") {
  const extent s = 40, tokens = 301;
  const auto of_token = random_domains(tokens, 3, 5);
  for (const extent kept : std::array<extent, 2>{3, 40}) {
    const auto g1 = rounded_routing<float>({tokens, 4, s}, 1, kept),
               g2 = rounded_routing<float>({tokens, 4, s}, 2, kept);
    expert_domains once(s, 3);
    once.add(g1, g2, of_token);
    for (const extent batch : std::array<extent, 4>{1, 7, 128, 300})
      for (const int threads : {1, 2, 7})
        on_threads(threads, [&] {
          expert_domains stream(s, 3);
          for (extent t = 0; t < tokens; t += batch) {
            const extent count = std::min<extent>(batch, tokens - t);
            stream.add(some_tokens(g1, t, count), some_tokens(g2, t, count),
                       std::span(of_token).subspan(t, count));
          }
          CHECK(means(stream, s) == means(once, s));
        });
  }
}

TEST_CASE("a batch of one domain is one of tokens that are all of it", "[expert_domains]") {
  const auto g1 = random_routing<float>({9, 2, 6}, 1, 3),
             g2 = random_routing<float>({9, 2, 6}, 2, 3);
  expert_domains whole(6, 4), each(6, 4);
  whole.add(g1, g2, 2);
  each.add(g1, g2, std::vector<extent>(9, 2));
  CHECK(means(whole, 6) == means(each, 6));
  CHECK(whole.tokens(2) == 9);
  CHECK(whole.tokens(1) == 0);
  whole.add(tensor<float, 3>({0, 2, 6}), tensor<float, 3>({0, 2, 6}), 1);
  whole.add(tensor<float, 3>({0, 2, 6}), tensor<float, 3>({0, 2, 6}), std::vector<extent>());
  CHECK(means(whole, 6) == means(each, 6));
  CHECK(whole.tokens(1) == 0);
}

TEST_CASE("an expert is of the domain where it is twice as probable as in the second",
          "[expert_domains]") {
  const extent s = 4;
  expert_domains d(s, 3);
  add_token(d, 0, {0, 0}, 2, s);  // exactly twice
  add_token(d, 1, {0, 0}, 1, s);
  add_token(d, 0, {0, 1}, 1.75f, s);  // less
  add_token(d, 1, {0, 1}, 1, s);
  add_token(d, 2, {1, 0}, 0.125f, s);  // in one domain only
  add_token(d, 2, {1, 1}, 8, s);       // the second comes first
  add_token(d, 1, {1, 1}, 4, s);
  add_token(d, 0, {1, 1}, 5, s);
  add_token(d, 0, {2, 2}, 1, s);  // alike
  add_token(d, 1, {2, 2}, 1, s);
  add_token(d, 2, {2, 2}, 1, s);
  add_token(d, 1, {3, 3}, 4, s);
  add_token(d, 2, {3, 3}, 1, s);
  for (const extent n : std::array<extent, 3>{0, 1, 2})
    while (d.tokens(n) < 8) add_token(d, n, {3, 0}, 0, s);  // the same number in each domain
  CHECK(d.domain_of({0, 0}) == 0);
  CHECK(!d.domain_of({0, 1}));
  CHECK(d.domain_of({0, 1}, 1.75) == 0);
  CHECK(d.domain_of({1, 0}) == 2);
  CHECK(d.domain_of({1, 0}, 1e30) == 2);
  CHECK(!d.domain_of({1, 1}));
  CHECK(d.domain_of({1, 1}, 1.6) == 2);
  CHECK(!d.domain_of({1, 1}, 1.61));
  CHECK(!d.domain_of({2, 2}));
  CHECK(d.domain_of({2, 2}, 1) == 0);
  CHECK(!d.domain_of({3, 0}, 1));
  CHECK(!d.domain_of({3, 2}, 1));
  using pairs = std::vector<index_pair>;
  CHECK(d.experts_of(0) == pairs{{0, 0}});
  CHECK(d.experts_of(1) == pairs{{3, 3}});
  CHECK(d.experts_of(2) == pairs{{1, 0}});
  CHECK(d.experts_of(0, 1) == pairs{{0, 0}, {0, 1}, {2, 2}});
}

TEST_CASE("means are of a domain's own tokens", "[expert_domains]") {
  expert_domains d(2, 2);
  for (int k = 0; k < 3; ++k) add_token(d, 0, {1, 1}, 1, 2);
  add_token(d, 1, {1, 1}, 3, 2);
  CHECK(d.mean_probability(0, {1, 1}) == 1);
  CHECK(d.mean_probability(1, {1, 1}) == 3);
  const expert_domains copy = d;
  add_token(d, 1, {1, 1}, 5, 2);
  CHECK(copy.mean_probability(1, {1, 1}) == 3);
  CHECK(d.mean_probability(1, {1, 1}) == 4);
  CHECK(d.domain_of({1, 1}) == 1);
}

TEST_CASE("what cannot be added changes nothing; a domain without tokens has mean 0 and no experts",
          "[expert_domains]") {
  const tensor<float, 3> g({3, 2, 5}, std::vector<float>(30, 1.0f));
  expert_domains d(5, 2);
  auto broken = some_tokens(g, 0, 3);
  broken(2, 1, 4) = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(d.add(g, g, 2), value_error);
  CHECK_THROWS_AS(d.add(g, g, std::vector<extent>{0, 1, 2}), value_error);
  CHECK_THROWS_AS(d.add(g, g, std::vector<extent>{0, 1}), shape_error);
  CHECK_THROWS_AS(d.add(g, broken, 0), value_error);
  CHECK_THROWS_AS(d.add(broken, g, 0), value_error);
  CHECK_THROWS_AS(d.add(g, tensor<float, 3>({3, 1, 5}), 0), shape_error);
  CHECK(means(d, 5) == std::vector<double>(50));
  CHECK(d.tokens(0) == 0);
  CHECK_THROWS_AS(d.tokens(2), value_error);
  CHECK_THROWS_AS(d.mean_probability(2, {0, 0}), value_error);
  CHECK_THROWS_AS(d.mean_probability(0, {0, 5}), value_error);
  CHECK_THROWS_AS(d.mean_probability(0, {5, 0}), value_error);
  d.add(g, g, 0);
  CHECK(d.mean_probability(0, {4, 4}) == 2);
  CHECK_THROWS_WITH(d.domain_of({0, 0}), containing("domain 1 has no tokens"));
  CHECK_THROWS_AS(d.experts_of(0), value_error);
  d.add(g, g, 1);
  CHECK(d.experts_of(0).empty());
  CHECK_THROWS_AS(d.experts_of(2), value_error);
  CHECK_THROWS_AS(d.experts_of(0, 0.99), value_error);
  CHECK_THROWS_AS(d.experts_of(0, std::numeric_limits<double>::quiet_NaN()), value_error);
  CHECK_THROWS_AS(d.domain_of({5, 0}), value_error);
}

// The experts of one domain are deleted, and the layer is the sum over the others.
TEMPLATE_TEST_CASE("a layer without the experts of a domain", "[expert_domains]", monet_hd<double>,
                   monet_vd<double>) {
  const monet_sizes n{.t = 40, .d = 10, .p = 2, .s = 7, .m = 4};
  TestType layer = [&] {
    if constexpr (std::is_same_v<TestType, monet_hd<double>>) return random_hd<double>(n, 3);
    else return random_vd<double>(n, 3);
  }();
  monet_router<double> router;
  router.keys1 = random<parameter<double, 2>>({n.d, n.p * n.s}, 1);
  router.keys2 = random<parameter<double, 2>>({n.d, n.p * n.s}, 2);
  router.heads = n.p;
  router.active = 3;
  auto chemistry = random<tensor<double, 2>>({n.t, n.d}, 20),
       law = random<tensor<double, 2>>({n.t, n.d}, 21);
  for (extent t = 0; t < n.t; ++t) {
    chemistry(t, 0) += 2;
    law(t, 0) -= 2;
  }

  expert_domains domains(n.s, 2);
  domains.add(evaluate(router.g1(chemistry)), evaluate(router.g2(chemistry)), 0);
  domains.add(evaluate(router.g1(law)), evaluate(router.g2(law)), 1);
  layer.deleted = domains.experts_of(0);  // unlearn chemistry

  CHECK(layer.deleted.size() > 3);
  CHECK(layer.deleted.size() < n.s * n.s);
  for (const auto* x : {&chemistry, &law}) {
    const auto g1 = evaluate(router.g1(*x)), g2 = evaluate(router.g2(*x));
    const auto y = evaluate(layer(*x, g1, g2));
    CHECK(relative_error(y.data(), output(layer, *x, g1, g2)) < 1e-13);
  }
}

}  // namespace
