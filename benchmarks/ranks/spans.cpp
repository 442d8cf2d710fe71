// SPDX-License-Identifier: MIT
// What spans of tokens gain: GPT-2's MxD over ranks that are threads, whose calls take as long as
// on a network of a given latency and bandwidth. Nothing travels: a rank sleeps that long.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "ranks.hpp"

namespace {

using namespace fmoe;

// Ranks whose calls last longer than those of `ranks`, by the time of a network.
class delayed_communicator final : public communicator {
 public:
  delayed_communicator(communicator& ranks, network_costs network)
      : communicator(ranks.rank(), ranks.size()),
        ranks_(ranks),
        network_(std::move(network)) {}

 private:
  std::string announce(const std::string& sentence) override {
    try {
      ranks_.fail(sentence);
    } catch (const communication_error& e) {
      return e.what();
    }
  }
  void meet(const detail::offer& mine, std::span<const std::size_t> expected,
            detail::function_ref<void(detail::offered_parts)> read) override {
    std::vector<std::byte> all(std::accumulate(expected.begin(), expected.end(), std::size_t{0}));
    if (mine.counts.empty()) ranks_.all_gather(mine.bytes, std::span(all), expected);
    else ranks_.all_to_all(mine.bytes, mine.counts, std::span(all), expected);
    wait(all.size() - expected[rank()]);
    read(split(all, expected));
  }
  void wait(std::size_t received) const {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(network_.seconds(static_cast<double>(received), 1)));
  }

  communicator& ranks_;
  network_costs network_;
};

struct span_times {
  double measured = 0, predicted = 0;
};

// The time of a call with so many spans, the least of some rounds.
span_times time_of(communicator& ranks, const mxd<>& layer, const network_costs& network,
                   std::size_t tokens, std::size_t spans, int rounds) {
  const auto part = shard(layer, ranks, 'n', {.network = network, .spans = spans});
  auto forward = compile(part, tokens, {.threads = 1});
  const auto x = bench::random_rows(tokens, layer.encoder.shape()[0]);
  tensor<float, 2> y({tokens, forward.output_shape()[0]});
  bench::spent least;
  for (int round = 0; round <= rounds; ++round) {
    bench::meet(ranks);
    const auto now = bench::spent::in([&] { forward(x, y); });
    if (round > 0) least.keep_least(now);  // the first call is for the caches
  }
  return {least.wall, forward.cost().seconds()};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto settings = bench::ranks_settings_of(argc, argv);
    const auto layer = bench::mxd_of(settings);
    std::puts(
        "| network | tokens of each rank | ms in one span | in two | ratio | predicted "
        "|\n|---|---|---|---|---|---|");
    const auto ethernet = [](const char* name, double bytes_per_second, double latency) {
      network_costs costs;
      costs.name = name;
      costs.bytes_per_second = bytes_per_second;
      costs.latency = latency;
      return costs;
    };
    for (const network_costs& network : {ethernet("Ethernet of 1 Gbit/s", 0.125e9, 50e-6),
                                         ethernet("Ethernet of 10 Gbit/s", 1.25e9, 20e-6)})
      for (const std::size_t tokens : settings.tokens)
        run_on_threads(2, [&](communicator& threads) {
          delayed_communicator ranks(threads, network);
          ranks.guarded([&] {
            const auto one = time_of(ranks, layer, network, tokens, 1, settings.rounds),
                       two = time_of(ranks, layer, network, tokens, 2, settings.rounds);
            if (ranks.rank() == 0)
              std::printf("| %s | %zu | %.1f | %.1f | %.2f | %.2f |\n", network.name.c_str(),
                          tokens, 1e3 * one.measured, 1e3 * two.measured,
                          two.measured / one.measured, two.predicted / one.predicted);
          });
        });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
