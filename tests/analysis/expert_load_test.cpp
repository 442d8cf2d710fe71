// SPDX-License-Identifier: MIT
#include <fmoe/analysis/expert_load.hpp>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"
#include "../support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEST_CASE("loads, entropies and the auxiliary loss of a batch written out by hand",
          "[expert_load]") {
  const tensor<double, 2> chosen({4, 3},
                                 std::array<double, 12>{1, 1, 0, 1, 0, 1, 1, 1, 0, 0.25, -3, 0});
  const tensor<double, 2> scores({4, 3});  // each probability is a third
  expert_load load(3);
  load.add(chosen, scores);
  CHECK(load.tokens() == 4);
  CHECK(load.counts() == std::vector<extent>{4, 3, 1});
  CHECK(load.load() == std::vector<double>{1, 0.75, 0.25});
  CHECK(load.load_share() == std::vector<double>{0.5, 0.375, 0.125});
  for (const double p : load.mean_probability()) CHECK(std::abs(p - 1.0 / 3) < 1e-15);
  CHECK(std::abs(entropy(load.load()) - (-0.75 * std::log(0.75) - 0.25 * std::log(0.25))) < 1e-15);
  CHECK(std::abs(load.confidence_entropy() - std::log(3.0)) < 1e-15);
  CHECK(std::abs(load.auxiliary_loss(load.load()) - 0.01 * 3 * 2.0 / 3) < 1e-15);
  CHECK(std::abs(load.auxiliary_loss(load.load_share(), 1) - 1) < 1e-15);
}

TEST_CASE("a stream of batches is one long batch", "[expert_load]") {
  const auto chosen = random<tensor<float, 2>>({30, 5}, 1),
             scores = random<tensor<float, 2>>({30, 5}, 2, 4);
  expert_load once(5), stream(5);
  once.add(chosen, scores);
  for (extent t = 0; t < 30; t += 6) {
    const auto part = [&](const tensor<float, 2>& from) {
      return tensor<float, 2>({6, 5}, std::span<const float>(from.data() + t * 5, 30));
    };
    stream.add(part(chosen), part(scores));
  }
  CHECK(stream.counts() == once.counts());
  CHECK(stream.mean_probability() == once.mean_probability());
  CHECK(stream.confidence_entropy() == once.confidence_entropy());
}

TEST_CASE("any number of threads has the same bits", "[expert_load]") {
  const auto chosen = random<tensor<float, 2>>({300, 600}, 1),
             scores = random<tensor<float, 2>>({300, 600}, 2, 4);
  expert_load one(600), seven(600);
  on_threads(1, [&] { one.add(chosen, scores); });
  on_threads(7, [&] { seven.add(chosen, scores); });
  CHECK(one.counts() == std::vector<extent>(600, 300));
  double sum = 0;
  for (const double p : one.mean_probability()) sum += p;
  CHECK(std::abs(sum - 1) < 1e-12);
  CHECK(seven.counts() == one.counts());
  CHECK(seven.mean_probability() == one.mean_probability());
  CHECK(seven.confidence_entropy() == one.confidence_entropy());
}

TEST_CASE("no tokens, and batches of other shapes", "[expert_load]") {
  expert_load load(2);
  CHECK(load.load() == std::vector<double>{0, 0});
  CHECK(load.load_share() == std::vector<double>{0, 0});
  CHECK(load.confidence_entropy() == 0);
  CHECK(load.auxiliary_loss(load.load()) == 0);
  CHECK(entropy({}) == 0);
  CHECK_THROWS_AS(load.add(tensor<float, 2>({1, 3}), tensor<float, 2>({1, 3})), shape_error);
  CHECK_THROWS_AS(load.add(tensor<float, 2>({1, 2}), tensor<float, 2>({2, 2})), shape_error);
}

}  // namespace
