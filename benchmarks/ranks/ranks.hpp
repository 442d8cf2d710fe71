// SPDX-License-Identifier: MIT
// The limits of a layer over ranks: an MxD whose experts are cut, beside one process. Results and
// received bytes are checked before anything is timed; calls of one process and of the ranks
// alternate, and the numbers are the least of all rounds.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmoe/distributed.hpp>
#include <fmoe/mxd.hpp>

#include "../support/random.hpp"

namespace fmoe::bench {

struct ranks_settings {
  extent i = 768, h = 3072, n = 21'490, k = 32;  // GPT-2's MxD; as many outputs as inputs
  std::vector<extent> tokens = {1, 16, 128, 512, 2048};
  int rounds = 7;
};

// Reads the arguments: --check for a tiny layer, or --tokens N, --experts N and --rounds N.
inline ranks_settings ranks_settings_of(int argc, char** argv) {
  ranks_settings s;
  for (int a = 1; a < argc; ++a) {
    const std::string name = argv[a];
    if (name == "--check") {
      s = {24, 40, 100, 5, {1, 16}, 1};
      continue;
    }
    if (a + 1 == argc) throw std::runtime_error("no number behind " + name);
    const auto number = static_cast<extent>(std::stoull(argv[++a]));
    if (name == "--tokens") s.tokens = {number};
    else if (name == "--experts") s.n = number;
    else if (name == "--rounds") s.rounds = static_cast<int>(number);
    else throw std::runtime_error("there is no argument " + name);
  }
  return s;
}

inline mxd<> mxd_of(const ranks_settings& s) {
  parameters<float, float> p;
  mxd<> m;
  m.encoder = p.weight(std::array{s.i, s.h}, s.i);
  m.encoder_bias = p.bias(s.h);
  m.gate = p.weight(std::array{s.i, s.n}, s.i);
  m.gate_bias = p.bias(s.n);
  m.scales = p.weight(std::array{s.n, s.i}, 1);
  m.decoder = p.weight(std::array{s.h, s.i}, s.h);
  m.bias = p.bias(s.i);
  m.active = s.k;
  return m;
}

// Seconds by the clock, and of the processors for all threads of the process.
struct spent {
  double wall = std::numeric_limits<double>::infinity(), cpu = wall;

  template <class F>
  static spent in(const F& f) {
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu_begin = std::clock();
    f();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    return {wall.count(), static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC};
  }
  void keep_least(const spent& o) {
    wall = std::min(wall, o.wall);
    cpu = std::min(cpu, o.cpu);
  }
};

inline void meet(communicator& ranks) {
  float one = 1;
  ranks.all_reduce(std::span(&one, 1));
}

// Throws unless a rank's rows are those of one process.
inline void check_rows(const tensor<float, 2>& mine, const tensor<float, 2>& all, extent first) {
  const float* const expected = all.data() + first * mine.shape()[1];
  float worst = 0, greatest = 0;
  for (extent i = 0; i < mine.size(); ++i) {
    worst = std::max(worst, std::abs(mine.data()[i] - expected[i]));
    greatest = std::max(greatest, std::abs(expected[i]));
  }
  if (!(worst <= 1e-5f * greatest)) throw std::runtime_error("the ranks compute something else");
}

// Prints a row of the table for a number of tokens of all ranks. The ranks are threads of one
// process, or each is a process.
inline void measure_tokens(communicator& ranks, const ranks_settings& s, const mxd<>& layer,
                           const sharded<mxd<>>& part, extent tokens, bool in_one_process) {
  const extent P = ranks.size();
  const auto begin = [&](extent r) { return detail::begin_of_part(tokens, P, r); };
  const extent first = begin(ranks.rank()), own = begin(ranks.rank() + 1) - first;
  auto forward = compile(part, std::max<extent>(detail::divide_up(tokens, P), 1), {.threads = 1});
  const auto x = random_rows(tokens, s.i);
  tensor<float, 2> mine({own, s.i}), y({own, s.i}), expected({tokens, s.i});
  std::copy_n(x.data() + first * s.i, mine.size(), mine.data());
  const auto alone = compile(layer, tokens, {.threads = 1}),
             threaded = compile(layer, tokens, {.threads = static_cast<unsigned>(P)});

  const extent before = ranks.received();
  alone(x, expected);
  forward(mine, y);
  check_rows(y, expected, first);
  auto received = static_cast<double>(ranks.received() - before) / static_cast<double>(tokens);
  if (ranks.size() > 1) ranks.all_reduce(std::span(&received, 1));
  received /= static_cast<double>(P);
  const double formula = forward.received_a_token(),
               a_call = forward.cost().bytes_a_call / static_cast<double>(tokens);
  const bool is_even = tokens % P == 0;
  if (is_even && std::abs(received - a_call - formula) > 0.01 * formula)
    throw std::runtime_error("a rank received " + std::to_string(received) +
                             " bytes a token, not " + std::to_string(formula));

  spent by_ranks, by_one, by_threads;
  for (int round = 0; round < s.rounds; ++round) {
    meet(ranks);
    if (ranks.rank() == 0) {
      by_one.keep_least(spent::in([&] { alone(x, expected); }));
      by_threads.keep_least(spent::in([&] { threaded(x, expected); }));
    }
    meet(ranks);
    spent now = spent::in([&] {
      forward(mine, y);
      meet(ranks);
    });
    if (!in_one_process) ranks.all_reduce(std::span(&now.cpu, 1));
    by_ranks.keep_least(now);
  }
  if (ranks.rank() != 0) return;
  std::printf("| %zu | %zu | %.0f | %.0f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", P, tokens,
              formula, received, 1e3 * by_one.cpu, 1e3 * by_ranks.cpu, by_ranks.cpu / by_one.cpu,
              1e3 * by_threads.wall, 1e3 * by_ranks.wall, by_threads.wall / by_ranks.wall);
  std::fflush(stdout);
}

inline void measure_ranks(communicator& ranks, const ranks_settings& s, bool in_one_process) {
  const network_costs measured = measure_network(ranks);
  if (ranks.rank() == 0) {
    std::printf("%s\n", detail::text_of(measured).c_str());
    std::puts(
        "| ranks | tokens | bytes a token | counted | CPU ms of one process | of all ranks | ratio "
        "| ms of as many threads | of the ranks | ratio "
        "|\n|---|---|---|---|---|---|---|---|---|---|");
  }
  const mxd<> layer = mxd_of(s);
  const auto part = shard(layer, ranks, 'n');
  for (const extent tokens : s.tokens)
    measure_tokens(ranks, s, layer, part, tokens, in_one_process);
}

}  // namespace fmoe::bench
