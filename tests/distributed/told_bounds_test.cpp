// SPDX-License-Identifier: MIT
// Ranks tell each other bounds of scores before they compute these in full; no selection changes.
#include <atomic>

#include "../support/catch.hpp"
#include "../support/shard_checks.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST_CASE("ranks that tell bounds select what one process selects") {
  const auto x = rows(70, 64, 64);
  for (const std::size_t P : {2u, 3u, 4u})
    run_on_threads(P, [&](communicator& ranks) {
      for (const int steps : {1, 2, 64})  // with few steps many scores are equal or 0
        check_wide(ranks, wide_layer_of(steps), rows(70, 64, steps), "steps");
      auto best_on_one = wide_layer_of(64);
      for (std::size_t i = 0; i < 64; ++i)
        for (std::size_t n = 100; n < 200; ++n) best_on_one.gate.data()[i * 4300 + n] *= 9;
      check_wide(ranks, best_on_one, x, "all on one rank");
      auto below = wide_layer_of(64);
      tensor<float, 2> above = x;
      for (std::size_t i = 0; i < below.gate.size(); ++i)
        below.gate.data()[i] = -std::abs(below.gate.data()[i]);
      for (std::size_t i = 0; i < above.size(); ++i) above.data()[i] = std::abs(above.data()[i]);
      check_wide(ranks, below, above, "scores below 0");
      auto two_above = below;  // fewer scores above 0 than are kept
      for (const std::size_t n : {7u, 4000u})
        for (std::size_t i = 0; i < 64; ++i) two_above.gate.data()[i * 4300 + n] *= -1;
      check_wide(ranks, two_above, above, "two scores above 0");
      auto huge = x;  // rows that cannot be screened
      for (const std::size_t t : {0u, 33u, 69u}) huge(t, 5) = 0x1p100f;
      check_wide(ranks, wide_layer_of(64), huge, "huge rows");
    });
}

TEST_CASE("ranks tell bounds where parts are screened and rows are neither few nor many") {
  run_on_threads(4, [&](communicator& ranks) {
    const auto tells = [&](const auto& layer, std::size_t tokens, std::size_t spans = 1) {
      const auto part = shard(layer, ranks, 'n', {.spans = spans});
      const auto forward = compile(part, tokens, {.threads = 1});
      return forward.explain().find(bounds_text) != std::string::npos;
    };
    require(tells(wide_layer_of(3), 16), "64 rows");
    require(!tells(wide_layer_of(3), 15), "60 rows");
    require(tells(wide_layer_of(3), 1024), "4096 rows");
    const auto forward = compile(shard(wide_layer_of(3), ranks, 'n'), 1024, {.threads = 1});
    require(forward.explain().find("tile of 4096 tokens") != std::string::npos, "one tile");
    require(!tells(wide_layer_of(3), 1025), "4100 rows");
    require(!tells(mixture_of_many(0, 640), 64), "parts of 160 columns");
    require(!tells(wide_layer_of(3, 63), 64), "rows of 63 numbers");
    auto many_kept = wide_layer_of(3);
    many_kept.active = 17;
    require(!tells(many_kept, 64), "more than a 64th of 1,075 columns");
    require(!tells(wide_layer_of(3), 256, 2), "two spans, of which one computes");
  });
}

TEST_CASE("the bytes and calls of bounds are counted") {
  run_on_threads(4, [](communicator& ranks) {
    const auto layer = wide_layer_of(64);
    auto forward = compile(shard(layer, ranks, 'n'), 16, {.threads = 1});
    const auto x = rows(16, 64, 64);
    tensor<float, 2> y({16, 8});
    const std::size_t calls = ranks.calls(), bytes = ranks.received();
    forward(x, y);
    const shard_costs& cost = forward.cost();
    require(ranks.calls() - calls == cost.calls, forward.explain());
    require(double(ranks.received() - bytes) == cost.bytes_a_token * 64 + cost.bytes_a_call,
            forward.explain());
    const double merged = cost.steps[3].bytes_a_token, first = 12;
    require(cost.steps[3].name == "merge" && cost.steps[3].calls == 4, forward.explain());
    require(merged == 12 * (first + 1) * 0.75, forward.explain());
  });
}

// Bounds of some rows that a rank has found: the rows of rank r have r fewer.
float bound_of(std::size_t rank, std::size_t t, std::size_t i, std::size_t each) {
  if (i + rank >= each) return -infinity;
  return t % 3 == 2 ? -1 - static_cast<float>(i)
                    : std::sin(static_cast<float>(1 + 7 * rank + 31 * t + i));
}

TEST_CASE("the owner of a token tells the K-th greatest bound, if it is above 0") {
  const std::size_t each = 5, keep = 7, tokens = 9;
  for (const std::size_t P : {2u, 3u, 4u})
    run_on_threads(P, [&](communicator& ranks) {
      detail::call_tokens shares{{}, ranks.rank()};
      for (std::size_t r = 0; r < P; ++r) shares.of_rank.push_back(r == 1 ? 0 : tokens / (P - 1));
      detail::told_bounds told(ranks, shares, each, keep);
      score_bounds& mine = told.bounds();
      require(mine.each == each && mine.least.size() == shares.all(), "the shapes");
      for (std::size_t t = 0; t < shares.all(); ++t)
        for (std::size_t i = 0; i < each; ++i)
          mine.lower[t * each + i] = bound_of(ranks.rank(), t, i, each);
      mine.is_told = true;
      mine.tell();
      told.finish();
      for (std::size_t t = 0; t < shares.all(); ++t) {
        std::vector<float> all;
        for (std::size_t r = 0; r < P; ++r)
          for (std::size_t i = 0; i < each; ++i) all.push_back(bound_of(r, t, i, each));
        std::sort(all.begin(), all.end(), std::greater());
        const float expected = all[keep - 1] > 0 ? all[keep - 1] : -infinity;
        require(mine.least[t] == expected, "the bound of token " + std::to_string(t));
      }
    });
}

TEST_CASE("a rank that does not screen tells that it knows no bounds") {
  run_on_threads(3, [](communicator& ranks) {
    const detail::call_tokens shares{{2, 2, 2}, ranks.rank()};
    detail::told_bounds told(ranks, shares, 2, 3);
    if (ranks.rank() != 1) {
      std::ranges::fill(told.bounds().lower, 1 + static_cast<float>(ranks.rank()));
      told.bounds().is_told = true;
      told.bounds().tell();
    }
    told.finish();
    for (const float least : told.bounds().least) require(least == 1, "3 of 1, 1, 3, 3");
  });
}

TEST_CASE("a rank that fails while others tell bounds makes all throw its sentence") {
  std::atomic<int> thrown = 0, bounds = 0;
  const auto run = [&](communicator& ranks) {
    const detail::call_tokens shares{{1, 1, 1}, ranks.rank()};
    if (ranks.rank() == 2) throw std::runtime_error("no more");
    detail::told_bounds told(ranks, shares, 2, 3);
    told.bounds().is_told = true;
    told.bounds().tell();  // a kernel goes on
    bounds += told.bounds().least[0] != -infinity;
    try {
      told.finish();
    } catch (const communication_error& e) {
      thrown += std::string(e.what()) == "rank 2 failed: no more";
      throw;
    }
  };
  CHECK_THROWS_WITH(run_on_threads(3, run), "rank 2 failed: no more");
  CHECK(thrown == 2);
  CHECK(bounds == 0);
}

TEST_CASE("a screen leaves out what is below a bound, and keeps the rest with the same bits") {
  const std::size_t T = 400;  // which three threads would share in tiles, if no bounds were told
  const auto layer = wide_layer_of(64);
  const auto x = rows(T, 64, 64);
  ir::graph g;
  const ir::node_list roots = layer.scores(argument<0, 2>(T)).lower(g);
  const auto all = evaluate(layer.scores(x));
  for (const std::size_t threads : {1u, 3u}) {
    const auto made = detail::compile_graph<float, cpu::native>(
        g, roots, T, {.threads = threads, .shape = plan_shape{.tile = T}});
    tensor<float, 2> y({T, 4300});
    std::vector<float> lower(T * 16), least(T);
    std::size_t told = 0;
    const auto tell = [&] {
      ++told;
      for (std::size_t t = 0; t < T; ++t) {
        const auto mine = std::span(lower).subspan(16 * t, 16);
        std::sort(mine.begin(), mine.end());
        std::vector<float> kept;
        for (std::size_t n = 0; n < 4300; ++n)
          if (all(t, n) != 0) kept.push_back(all(t, n));
        std::sort(kept.begin(), kept.end());
        REQUIRE(kept.size() == 16);
        for (std::size_t k = 0; k < 16; ++k) {
          CHECK(mine[k] <= kept[k]);
          CHECK(mine[k] > kept[k] - 1e-2f);
        }
        least[t] = t == 0 ? -infinity : t == 1 ? infinity : kept[9];  // a score reaches its bound
      }
    };
    score_bounds bounds{16, lower, least, tell};
    const std::vector<detail::bound_array> in{{detail::view_of(x), 1}},
        out{{detail::view_of(y), 1}};
    made.program->run({.arguments = in, .results = out, .tokens = T, .bounds = &bounds});
    CHECK(told == 1);
    CHECK(bounds.is_told);
    std::size_t left_out = 0;
    for (std::size_t t = 0; t < T; ++t)
      for (std::size_t n = 0; n < 4300; ++n) {
        const bool is_there = y(t, n) != 0;
        if (is_there) CHECK(y(t, n) == all(t, n));
        if (all(t, n) != 0 && all(t, n) >= least[t]) CHECK(is_there);
        left_out += all(t, n) != 0 && !is_there;
      }
    CHECK(left_out > 8 * (T - 2));
  }
}

}  // namespace
