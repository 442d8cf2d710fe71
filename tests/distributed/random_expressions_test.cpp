// SPDX-License-Identifier: MIT
#include "../support/random_shards.hpp"

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEST_CASE("random expressions over ranks agree with the oracle") {
  const auto expressions = random_shards();
  std::map<std::string, extent> exchanges;
  for (const std::size_t P : {1u, 2u, 3u, 4u, 7u})
    run_on_threads(P, [&](communicator& ranks) {
      const shard_census seen = check_random_shards(ranks, expressions);
      for (const auto& [why, count] : seen.refused) require(why.starts_with("[shard]"), why);
      if (ranks.rank() != 0) return;
      if (expressions.size() >= 220) require(seen.cut >= 200, "the number of expressions");
      for (const auto& [what, count] : seen.exchanges) exchanges[what] += count;
    });
  if (expressions.size() < 220) return;
  for (const auto& [what, least] : {std::pair("all_gather", 100u),
                                    {"all_to_all", 100u},
                                    {"reduce_scatter", 100u},
                                    {"take this rank's rows", 10u},
                                    {"all_reduce", 1u},
                                    {"merge softmax", 1u},
                                    {"merge L1 norm", 1u},
                                    {"merge max norm", 1u}}) {
    INFO(what);
    CHECK(exchanges[what] >= least);
  }
}

}  // namespace
