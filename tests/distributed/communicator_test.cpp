// SPDX-License-Identifier: MIT
#include "../support/rank_checks.hpp"

#include <barrier>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

void run_and_meet(std::size_t P, void (*check)(communicator&, const meeting_place&)) {
  std::barrier all(static_cast<std::ptrdiff_t>(P));
  run_on_threads(P, [&](communicator& ranks) { check(ranks, [&] { all.arrive_and_wait(); }); });
}

TEST_CASE("collectives bring what they promise, and count their bytes") {
  for (const std::size_t P : {1u, 2u, 3u, 4u, 7u, 8u}) run_on_threads(P, check_collectives);
}

TEST_CASE("calls may be large and small by turns") {
  for (const std::size_t P : {1u, 3u, 4u}) run_on_threads(P, check_large_calls);
}

TEST_CASE("calls follow each other at once") {
  for (const std::size_t P : {2u, 4u}) run_on_threads(P, check_many_calls);
}

TEST_CASE("sums over ranks have the same bits in every run") {
  std::vector<float> first;
  for (int run = 0; run < 20; ++run)
    run_on_threads(5, [&](communicator& ranks) {
      std::vector<float> x(100);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = number_of(ranks.rank(), i);
      ranks.all_reduce(std::span(x));
      if (ranks.rank() != 0) return;
      if (first.empty()) first = x;
      require(first == x, "the bits of another run");
    });
}

TEST_CASE("a rank that throws makes all ranks throw its sentence") {
  for (const std::size_t P : {2u, 3u, 8u}) run_and_meet(P, check_a_rank_that_throws);
  CHECK_THROWS_WITH(run_on_threads(3,
                                   [](communicator& ranks) {
                                     if (ranks.rank() == 1) throw std::runtime_error("no");
                                     meet(ranks);
                                   }),
                    "rank 1 failed: no");
}

TEST_CASE("a rank that hangs is named by the collective that waited for it") {
  for (const std::size_t P : {2u, 4u}) run_and_meet(P, check_a_rank_that_hangs);
}

TEST_CASE("ranks that disagree are refused") {
  for (const std::size_t P : {1u, 2u, 4u}) run_on_threads(P, check_agreement);
}

TEST_CASE("ranks that call different functions are refused") {
  for (const std::size_t P : {2u, 4u}) run_on_threads(P, check_other_functions);
}

TEST_CASE("ranks that count differently are refused") {
  for (const std::size_t P : {2u, 4u}) run_on_threads(P, check_other_counts);
}

}  // namespace
