// SPDX-License-Identifier: MIT
// Measures only the selection, on rows of normal scores in L2. vs_partial_sort and vs_nth_element
// say how many times as long the standard library takes.
#include <numeric>

#include <fmoe/backend/cpu/kernels/top_k.hpp>

#include "support/contest.hpp"
#include "support/random.hpp"
#include "support/roofline.hpp"

namespace fmoe::bench {
namespace {

using arch = cpu::native_arch;
using indices = std::vector<std::uint32_t>;

struct selection_size {
  extent keep, experts;
};

class selector {
 public:
  selector(selection_size s, const tensor<float, 2>& scores)
      : size_(s),
        scores_(scores),
        state_(cpu::top_k_state_size<float, arch>(s.keep)),
        order_(s.experts) {}

  void ours(extent row) {
    const float* x = row_of(row);
    const cpu::top_k_state<float, arch> state(state_.data(), size_.keep);
    cpu::top_k_scan<float, arch>(state, size_.keep, x, size_.experts, 0, true, true);
    cpu::top_k_finish<float, arch>(state, size_.keep, weighting::score, x, size_.experts);
  }
  void by_partial_sort(extent row) {
    std::iota(order_.begin(), order_.end(), 0u);
    std::partial_sort(order_.begin(), kept_end(), order_.end(), greater{row_of(row)});
  }
  void by_nth_element(extent row) {
    std::iota(order_.begin(), order_.end(), 0u);
    std::nth_element(order_.begin(), kept_end() - 1, order_.end(), greater{row_of(row)});
  }

  bool is_right(extent row) {
    ours(row);
    const auto kept = cpu::top_k_result<float, arch>(state_.data(), size_.keep);
    by_partial_sort(row);
    indices best(order_.begin(), kept_end());
    std::ranges::sort(best);
    return std::equal(best.begin(), best.end(), kept.indices, kept.indices + kept.count);
  }

 private:
  struct greater {  // the order in which entries are kept
    const float* x;
    bool operator()(std::uint32_t a, std::uint32_t b) const {
      return x[a] > x[b] || (x[a] == x[b] && a < b);
    }
  };

  const float* row_of(extent row) const { return scores_.data() + row * size_.experts; }
  indices::iterator kept_end() { return order_.begin() + static_cast<std::ptrdiff_t>(size_.keep); }

  selection_size size_;
  tensor<float, 2> scores_;
  std::vector<float> state_;
  indices order_;
};

void measure(benchmark::State& state, selection_size s, bool tiny) {
  constexpr extent rows = 8;
  selector select(s, random_rows(rows, s.experts));
  for (extent r = 0; r < rows; ++r)
    if (!select.is_right(r)) return reject(state, "top-k keeps other entries than a sort");
  const auto seconds_a_row = [&](auto f, extent repeats) {
    const double start = seconds(1);
    for (extent i = 0; i < repeats; ++i)
      for (extent r = 0; r < rows; ++r) f(r);
    return (seconds(1) - start) / static_cast<double>(repeats * rows);
  };
  std::vector<double> times, sorts, partitions, peaks;
  for (int round = 0; round < (tiny ? 1 : 11); ++round) {
    peaks.push_back(peak_flops(1));
    times.push_back(seconds_a_row([&](extent r) { select.ours(r); }, 500));
    sorts.push_back(seconds_a_row([&](extent r) { select.by_partial_sort(r); }, 20) / times.back());
    partitions.push_back(seconds_a_row([&](extent r) { select.by_nth_element(r); }, 10) /
                         times.back());
  }
  for (auto _ : state) state.SetIterationTime(median(times));
  state.counters["vs_partial_sort"] = median(sorts);
  state.counters["vs_nth_element"] = median(partitions);
  state.counters["peak_GFLOP/s"] = 1e-9 * median(peaks);
}

const suite top_k_rows([](bool tiny) {
  constexpr selection_size papers[] = {{32, 21'490}, {32, 28'658}, {32, 4096}, {8, 512}};
  constexpr selection_size tests[] = {{5, 100}, {32, 3000}};
  for (const selection_size& s : tiny ? std::span<const selection_size>(tests) : papers) {
    const std::string name = "top_k/" + std::to_string(s.keep) + "_of_" + std::to_string(s.experts);
    benchmark::RegisterBenchmark(name.c_str(), measure, s, tiny)
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
});

}  // namespace
}  // namespace fmoe::bench
