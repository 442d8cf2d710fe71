// SPDX-License-Identifier: MIT
// A call's tokens in spans: one computes while another exchanges, with the bits of one span.
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <fmoe/aoe.hpp>

#include "../support/catch.hpp"
#include "../support/shard_checks.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// Steps 0 and 2 compute, 1 and 3 exchange.
constexpr auto is_odd = [](std::size_t step) { return step % 2 == 1; };

// Which steps of which spans have begun.
class begun_steps {
 public:
  void begin(std::size_t step, std::size_t span) {
    const std::lock_guard lock(mutex_);
    list_.push_back({step, span});
    changed_.notify_all();
  }
  // Waits until a step of a span has begun; returns false after a minute.
  bool wait(std::size_t step, std::size_t span) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1),
                             [&] { return std::ranges::count(list_, pair{step, span}) > 0; });
  }
  std::vector<std::size_t> spans_of(std::size_t step) const {
    std::vector<std::size_t> found;
    for (const pair& p : list_)
      if (p[0] == step) found.push_back(p[1]);
    return found;
  }

 private:
  using pair = std::array<std::size_t, 2>;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<pair> list_;
};

TEST_CASE("a span computes while the one before it exchanges, and spans keep their order") {
  begun_steps begun;
  bool overlaps = true;
  detail::run_in_lanes(4, 3, is_odd, [&](std::size_t step, std::size_t span) {
    begun.begin(step, span);
    // The exchange of a span ends when the next span has begun to compute.
    if (is_odd(step) && span < 2) overlaps = overlaps && begun.wait(step - 1, span + 1);
  });
  CHECK(overlaps);
  for (std::size_t step = 0; step < 4; ++step)
    CHECK(begun.spans_of(step) == std::vector<std::size_t>{0, 1, 2});
}

TEST_CASE("what exchanges stays on the caller's thread, and so does all of one span") {
  const auto caller = std::this_thread::get_id();
  for (const std::size_t spans : {1u, 2u}) {
    std::array<bool, 4> is_here{};  // one byte a step: two threads write
    detail::run_in_lanes(4, spans, is_odd, [&](std::size_t step, std::size_t) {
      is_here[step] = std::this_thread::get_id() == caller;
    });
    CHECK(is_here == std::array{spans == 1, true, spans == 1, true});
  }
}

TEST_CASE("a step that throws ends both lanes") {
  for (const std::size_t bad : {0u, 1u, 2u, 3u}) {
    std::mutex mutex;
    std::vector<std::size_t> ended(2);
    const auto call = [&] {
      detail::run_in_lanes(4, 2, is_odd, [&](std::size_t step, std::size_t span) {
        if (step == bad && span == 1) throw std::runtime_error("broken");
        const std::lock_guard lock(mutex);
        ++ended[span];
      });
    };
    CHECK_THROWS_WITH(call(), "broken");
    CHECK(ended[1] == bad);
  }
}

template <class Layer>
void check_spans(communicator& ranks, const Layer& layer, const std::vector<std::string>& whole,
                 const tensor<float, 2>& x, const std::string& name) {
  const auto once = result_on(ranks, shard(layer, ranks, 'n', {.whole = whole, .spans = 1}), x);
  for (const std::size_t spans : {2u, 3u, 5u}) {
    const auto part = shard(layer, ranks, 'n', {.whole = whole, .spans = spans});
    require(same_bits(result_on(ranks, part, x, 2), once),
            name + " in " + std::to_string(spans) + " spans");
  }
}

// Rows are so long that tokens travel to their experts.
moe<> routed_mixture() {
  moe<> layer;
  fill_with(layer.router, {640, 9}, 1, 1000);
  fill_with(layer.activated, {9, 640, 6}, 2, 1000);
  fill_with(layer.linear, {9, 640, 6}, 3, 1000);
  fill_with(layer.output, {9, 6, 640}, 4, 1000);
  return layer;
}

TEST_CASE("spans have the bits of one span") {
  for (const std::size_t P : {1u, 2u, 3u, 4u})
    run_on_threads(P, [&](communicator& ranks) {
      check_spans(ranks, mixture_of_decoders(1000), {}, rows(23, 12, 1000), "MxD");
      check_spans(ranks, mixture_of_decoders(1000), {}, rows(3, 12, 1000), "MxD of few tokens");
      // Some ranks are asked for more of their best.
      check_spans(ranks, mixture_of_many(160, 320), {}, rows(9, 12, 1000), "32 of 640");
      check_spans(ranks, routed_mixture(), {"router"}, rows(23, 640, 1000), "a mixture");
    });
}

TEST_CASE("the costs of spans are those of the calls that ranks make") {
  run_on_threads(4, [](communicator& ranks) {
    const auto layer = wide_mixture();
    auto once = compile(shard(layer, ranks, 'n', {.spans = 1}), 16, {.threads = 1});
    auto forward = compile(shard(layer, ranks, 'n', {.spans = 2}), 16, {.threads = 1});
    const shard_costs one = once.cost(), two = forward.cost();
    require(two.spans == 2 && two.calls == 2 * one.calls - 1, "a call says how many tokens come");
    require(two.bytes_a_token == one.bytes_a_token, "the same bytes");
    const double hidden = std::min(two.computing, two.exchanging) / 2;
    require(std::abs(two.seconds() - (two.computing + two.exchanging - hidden)) < 1e-12,
            "half of the shorter part is hidden");
    const auto x = rows(16, 32, 100);
    tensor<float, 2> y({16, 16});
    const std::size_t calls = ranks.calls(), bytes = ranks.received();
    forward(x, y);
    require(ranks.calls() - calls == two.calls, "the calls");
    require(double(ranks.received() - bytes) == two.bytes_a_token * 64 + two.bytes_a_call,
            "the bytes");
    const std::string plan = forward.explain();
    require(plan.find("2 spans of tokens: one computes while another exchanges") != plan.npos,
            plan);
    require(once.explain().find("one computes while") == std::string::npos,
            "one span says nothing");
  });
}

TEST_CASE("each span says how many entries its tokens send") {
  run_on_threads(3, [](communicator& ranks) {
    const auto bytes = [&](std::size_t spans) {
      const shard_options how{.whole = {"router"}, .spans = spans};
      const auto part = shard(routed_mixture(), ranks, 'n', how);
      const auto forward = compile(part, 16, {.threads = 1});
      require(forward.explain().find("routed tokens: ") != std::string::npos, "tokens travel");
      return forward.cost().bytes_a_call - 2 * 24;  // without the number of tokens
    };
    require(bytes(1) > 0 && bytes(3) == 3 * bytes(1), "the counts of entries");
  });
}

TEST_CASE("two spans are chosen where calls take as long as the work, and not for few tokens") {
  run_on_threads(2, [](communicator& ranks) {
    const auto spans = [&](const network_costs& network, std::size_t tokens) {
      const auto part = shard(mixture_of_decoders(1000), ranks, 'n', {.network = network});
      return compile(part, tokens, {.threads = 1}).cost().spans;
    };
    network_costs even{1e10, 1e9, 1e-9, 512, "a call takes about as long as the work"};
    require(spans(even, 128) == 2 && spans(even, 127) == 1, "128 tokens a span");
    network_costs fast = even;
    fast.bytes_per_second = 1e12;
    require(spans(fast, 128) == 1, "nothing to hide");
    fast.latency = 4e-6;  // all calls take as long as the work, and two spans make each twice
    require(spans(fast, 128) == 1, "twice the calls");
    // One rank alone would choose otherwise, and another number is refused.
    const auto other = [&] {
      shard_options mine{.spans = ranks.rank() + 1};
      compile(shard(mixture_of_decoders(1000), ranks, 'n', mine), 16, {.threads = 1});
    };
    const std::string got = sentence_of(other);
    require(got.find("the ranks disagree: rank 0 has \"spans: 1") == 0, got);
  });
}

}  // namespace
