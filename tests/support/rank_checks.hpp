// SPDX-License-Identifier: MIT
// What the ranks of a job must do, whatever they are: threads in tests/distributed, processes in
// tests/mpi. A check that fails throws.
#pragma once

#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <fmoe/distributed/thread_communicator.hpp>

namespace fmoe::test {

inline void require(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("wrong: " + what);
}

// A number of a rank whose sums depend on their order.
inline float number_of(std::size_t rank, std::size_t i) {
  return std::sin(static_cast<float>(31 * rank + i)) *
         std::pow(10.0f, static_cast<float>(rank % 5));
}

// Each rank has r + 1 numbers, or none if r is 2.
inline std::vector<std::size_t> uneven_counts(std::size_t ranks) {
  std::vector<std::size_t> counts;
  for (std::size_t r = 0; r < ranks; ++r) counts.push_back(r == 2 ? 0 : r + 1);
  return counts;
}

inline std::size_t sum_of(const std::vector<std::size_t>& counts) {
  std::size_t sum = 0;
  for (const std::size_t n : counts) sum += n;
  return sum;
}

// The sum of one number of each rank: ((0 + 1) + (2 + 3)) + ...
inline float tree_sum(std::vector<float> numbers) {
  while (numbers.size() > 1) {
    std::vector<float> next;
    for (std::size_t i = 0; i < numbers.size(); i += 2)
      next.push_back(i + 1 < numbers.size() ? numbers[i] + numbers[i + 1] : numbers[i]);
    numbers = next;
  }
  return numbers[0];
}

inline float sum_over_ranks(std::size_t ranks, std::size_t i) {
  std::vector<float> numbers;
  for (std::size_t r = 0; r < ranks; ++r) numbers.push_back(number_of(r, i));
  return tree_sum(numbers);
}

inline void check_collectives(communicator& ranks) {
  const std::size_t P = ranks.size(), me = ranks.rank();
  const auto counts = uneven_counts(P);
  const std::size_t total = sum_of(counts);

  std::vector<float> mine(counts[me]), all(total);
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = number_of(me, i);
  ranks.all_gather(std::span<const float>(mine), std::span(all), counts);
  for (std::size_t r = 0, at = 0; r < P; ++r)
    for (std::size_t i = 0; i < counts[r]; ++i) require(all[at++] == number_of(r, i), "all_gather");
  const std::size_t gathered = 4 * (total - counts[me]);
  require(ranks.received(collective::all_gather) == gathered, "bytes of all_gather");

  // Rank r gets counts[r] numbers from each.
  std::vector<double> out(total), in(counts[me] * P);
  for (std::size_t i = 0; i < total; ++i) out[i] = static_cast<double>(1000 * me + i);
  ranks.all_to_all(std::span<const double>(out), counts, std::span(in),
                   std::vector<std::size_t>(P, counts[me]));
  std::size_t before = 0;
  for (std::size_t r = 0; r < me; ++r) before += counts[r];
  for (std::size_t r = 0; r < P; ++r)
    for (std::size_t i = 0; i < counts[me]; ++i)
      require(in[r * counts[me] + i] == static_cast<double>(1000 * r + before + i), "all_to_all");
  require(ranks.received(collective::all_to_all) == 8 * counts[me] * (P - 1), "its bytes");

  std::vector<float> numbers(total), sums(counts[me]);
  for (std::size_t i = 0; i < total; ++i) numbers[i] = number_of(me, i);
  ranks.reduce_scatter(std::span<const float>(numbers), counts, std::span(sums));
  for (std::size_t i = 0; i < sums.size(); ++i)
    require(sums[i] == sum_over_ranks(P, before + i), "the order of reduce_scatter's sums");
  require(ranks.received(collective::reduce_scatter) == 4 * counts[me] * (P - 1), "its bytes");

  ranks.all_reduce(std::span(numbers));
  for (std::size_t i = 0; i < total; ++i)
    require(numbers[i] == sum_over_ranks(P, i), "the order of all_reduce's sums");
  std::vector<float> extremes{static_cast<float>(me), -static_cast<float>(me)};
  ranks.all_reduce(std::span(extremes), fold::max);
  require(extremes == std::vector<float>{static_cast<float>(P - 1), 0}, "all_reduce of maxima");
  extremes = {static_cast<float>(me), -static_cast<float>(me)};
  ranks.all_reduce(std::span(extremes), fold::min);
  require(extremes == std::vector<float>{0, 1 - static_cast<float>(P)}, "all_reduce of minima");
}

// A call in which one rank brings much more than the others, behind and before small ones.
inline void check_large_calls(communicator& ranks) {
  const std::size_t P = ranks.size(), me = ranks.rank();
  for (const std::size_t large : {10u, 5'000u, 11u, 1'024u, 12u, 1'025u}) {
    std::vector<std::size_t> counts(P, 5);
    counts[P - 1] = large;
    std::vector<float> mine(counts[me]), all(sum_of(counts));
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = number_of(me, i);
    ranks.all_gather(std::span<const float>(mine), std::span(all), counts);
    for (std::size_t r = 0, at = 0; r < P; ++r)
      for (std::size_t i = 0; i < counts[r]; ++i)
        require(all[at++] == number_of(r, i), "all_gather of " + std::to_string(large));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = number_of(me, i);
    ranks.all_reduce(std::span(all));
    for (std::size_t i = 0; i < all.size(); ++i)
      require(all[i] == sum_over_ranks(P, i), "all_reduce of " + std::to_string(large));
  }
}

// Calls that follow each other at once bring what belongs to them.
inline void check_many_calls(communicator& ranks) {
  for (std::size_t round = 0; round < 300; ++round) {
    std::vector<std::size_t> all(ranks.size());
    const std::size_t mine = 1000 * ranks.rank() + round;
    ranks.all_gather(std::span(&mine, 1), std::span(all),
                     std::vector<std::size_t>(ranks.size(), 1));
    for (std::size_t r = 0; r < all.size(); ++r)
      require(all[r] == 1000 * r + round, "call " + std::to_string(round));
  }
}

// Returns the sentence that f throws on this rank.
inline std::string sentence_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const communication_error& e) {
    return e.what();
  }
  return "nothing is thrown";
}

// One float of each rank.
inline void meet(communicator& ranks) {
  std::vector<float> all(ranks.size());
  const float mine = 1;
  ranks.all_gather(std::span(&mine, 1), std::span(all), std::vector<std::size_t>(ranks.size(), 1));
}

// A meeting of all ranks without the communicator, which may have failed.
using meeting_place = std::function<void()>;

// The last rank throws while the others wait; the first one of several throws, too, after that, and
// has heard nothing.
inline void check_a_rank_that_throws(communicator& ranks, const meeting_place& elsewhere) {
  const std::size_t last = ranks.size() - 1;
  const std::string expected = "rank " + std::to_string(last) + " failed: it has no more";
  const bool is_late = ranks.rank() == 0 && last > 1;
  const std::string got = sentence_of([&] {
    ranks.guarded([&] {
      if (ranks.rank() == last) throw std::runtime_error("it has no more");
      if (is_late) {
        elsewhere();
        throw std::runtime_error("it comes too late");
      }
      meet(ranks);
    });
  });
  if (!is_late) elsewhere();
  require(got == expected, "the sentence: " + got);
  require(sentence_of([&] { meet(ranks); }) == expected, "the sentence of the next call");
}

// The last rank does not come before the others have heard that it hangs.
inline void check_a_rank_that_hangs(communicator& ranks, const meeting_place& elsewhere) {
  const std::string expected = "a rank waited 0.2 s in all_reduce: another rank died or hangs";
  const bool is_last = ranks.rank() + 1 == ranks.size();
  if (is_last) elsewhere();
  else ranks.deadline = std::chrono::milliseconds(200);
  float one = 1;
  const std::string got = sentence_of([&] { ranks.all_reduce(std::span(&one, 1)); });
  if (!is_last) elsewhere();
  require(got == expected, "the sentence: " + got);
}

// The last rank calls another function.
inline void check_other_functions(communicator& ranks) {
  const std::string got = sentence_of([&] {
    if (ranks.rank() + 1 < ranks.size()) return meet(ranks);
    float one = 1;
    ranks.all_reduce(std::span(&one, 1));
  });
  require(got.find("does not expect") != got.npos, got);
}

// The last rank brings one number more than the others know.
inline void check_other_counts(communicator& ranks) {
  const std::size_t P = ranks.size(), last = P - 1;
  const bool is_last = ranks.rank() == last;
  const std::vector<float> mine(is_last ? 2 : 1);
  std::vector<float> all(P + 1);
  std::vector<std::size_t> counts(P, 1);
  counts[last] = is_last ? 2 : 1;
  const std::string got = sentence_of([&] {
    ranks.all_gather(std::span<const float>(mine), std::span(all), counts);
    meet(ranks);  // the last rank hears of it here
  });
  const std::string sentence = "rank " + std::to_string(last) + " is in all_gather and brings what";
  require(got.find(sentence) == 0, got);
}

inline void check_agreement(communicator& ranks) {
  ranks.agree("fmoe 0.1\nn in 8 parts\n");
  if (ranks.size() == 1) return;
  const std::string mine =
      ranks.rank() == 1 ? "fmoe 0.1\nn in 4 parts\nK 2" : "fmoe 0.1\nn in 8 parts\nK 2";
  const std::string got = sentence_of([&] { ranks.agree(mine); });
  require(got == "the ranks disagree: rank 0 has \"n in 8 parts\", and rank 1 has \"n in 4 parts\"",
          got);
  const std::string longer =
      sentence_of([&] { ranks.agree(ranks.rank() == 1 ? "K\n81" : "K\n8\n"); });
  require(longer == "the ranks disagree: rank 0 has \"8\", and rank 1 has \"81\"", longer);
}

}  // namespace fmoe::test
