// SPDX-License-Identifier: MIT
// The latency and the bandwidth of the ranks of a job.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include <fmoe/distributed/communicator.hpp>
#include <fmoe/distributed/network_costs.hpp>

namespace fmoe::detail {

// Returns the least seconds of one of several calls, on the rank where that is most. All ranks
// begin a call together.
template <class F>
double seconds_of_call(communicator& ranks, int times, const F& call) {
  using clock = std::chrono::steady_clock;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    float one = 1;
    ranks.all_reduce(std::span(&one, 1));
    const auto begin = clock::now();
    call();
    least = std::min(least, std::chrono::duration<double>(clock::now() - begin).count());
  }
  ranks.all_reduce(std::span(&least, 1), fold::max);
  return least;
}

}  // namespace fmoe::detail

namespace fmoe {

// Measures what a call without bytes takes on these ranks, and the bytes that a rank receives per
// second where all of them gather 4 MB; `other` has what is not measured. All ranks call it
// together, and get the same numbers. Other runs get other numbers, so that a layer may be laid out
// otherwise and have other bits. One rank alone measures nothing.
//
//   run_on_threads(2, [&](communicator& ranks) {
//     const shard_options how{.network = measure_network(ranks)};
//     auto forward = compile(shard(layer, ranks, 'n', how), 128);
//   });
inline network_costs measure_network(communicator& ranks, network_costs other = {}) {
  const std::size_t P = ranks.size(), bytes = (std::size_t{4} << 20) / P;
  if (P == 1) return other;
  const std::vector<std::size_t> one(P, 1), many(P, bytes);
  const std::vector<std::byte> mine(bytes);
  std::vector<std::byte> of_all(P * bytes);
  const auto gather = [&](const std::vector<std::size_t>& counts) {
    ranks.all_gather(std::span(mine).first(counts[0]), std::span(of_all).first(P * counts[0]),
                     counts);
  };
  gather(many);
  other.latency = detail::seconds_of_call(ranks, 50, [&] { gather(one); });
  const double seconds = detail::seconds_of_call(ranks, 5, [&] { gather(many); });
  other.bytes_per_second =
      static_cast<double>((P - 1) * bytes) / std::max(seconds - other.latency, seconds / 10);
  other.name = std::to_string(P) + " ranks as measured";
  return other;
}

}  // namespace fmoe
