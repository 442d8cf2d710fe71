// SPDX-License-Identifier: MIT
// Measures the limits of the machine in the process that quotes them: the FMA peak and the read
// bandwidth of several threads together.
#pragma once

#include <time.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <future>
#include <vector>

#include <benchmark/benchmark.h>

#include <fmoe/backend/cpu/measure.hpp>
#include <fmoe/base/memory.hpp>

#include "names.hpp"

namespace fmoe::bench {

// One thread is timed by its own seconds, so that other processes on the core do not count; several
// threads are timed by the wall clock.
inline double seconds(extent threads) {
  if (threads > 1)
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline double median(std::vector<double> v) {
  std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

// Returns the seconds that task(thread) takes, `rounds` times, on this many threads at once.
template <class Task>
std::vector<double> times_together(extent threads, int rounds, const Task& task) {
  std::vector<double> times;
  std::barrier together(static_cast<std::ptrdiff_t>(threads));
  const auto run = [&](extent thread) {
    for (int round = 0; round < rounds; ++round) {
      together.arrive_and_wait();
      const double start = seconds(threads);
      task(thread);
      together.arrive_and_wait();
      if (thread == 0) times.push_back(seconds(threads) - start);
    }
  };
  std::vector<std::future<void>> others;  // libc++ has std::jthread since release 20 only
  for (extent thread = 1; thread < threads; ++thread)
    others.push_back(std::async(std::launch::async, run, thread));
  run(0);
  return times;
}

// A multiply-add in fp32 counts 2.
inline double peak_flops(extent threads) {
  using vec = cpu::vec<float, cpu::native_arch>;
  constexpr int chains = 12, steps = 400'000;
  const auto times = times_together(threads, 3, [](extent) {
    vec sums[chains], x(0.999f), y(0.001f);
#pragma GCC unroll 12
    for (int i = 0; i < chains; ++i) sums[i] = vec(static_cast<float>(i));
    cpu::keep_in_register<cpu::native_arch>(x);  // otherwise the compiler computes it all,
    cpu::keep_in_register<cpu::native_arch>(y);  // or reads this operand from memory
    for (int k = 0; k < steps; ++k)
#pragma GCC unroll 12
      for (int i = 0; i < chains; ++i) sums[i] = cpu::fmadd<float, cpu::native_arch>(sums[i], x, y);
#pragma GCC unroll 12
    for (int i = 1; i < chains; ++i) sums[0] += sums[i];
    float total = cpu::sum<float, cpu::native_arch>(
        sums[0]);  // an array whose element is named would leave the registers
    benchmark::DoNotOptimize(total);
  });
  return 2.0 * chains * static_cast<double>(vec::size) * steps * static_cast<double>(threads) /
         *std::ranges::min_element(times);
}

// Memory that is read again and again, as the weights of a layer are.
class read_buffer {
 public:
  read_buffer(double bytes, extent threads)
      : threads_(threads),
        each_(std::max(
            line, static_cast<extent>(bytes) / (sizeof(float) * streams * threads * line) * line)),
        block_(threads * streams * each_ * sizeof(float)) {}

  // Returns bytes a second; every thread reads its part in four streams with prefetch.
  double bandwidth() const {
    using vec = cpu::vec<float, cpu::native_arch>;
    const extent repeats = std::max<extent>(1, (extent{16} << 20) / block_.size());
    auto times = times_together(threads_, 4, [&](extent thread) {
      const float* p = reinterpret_cast<const float*>(block_.data()) + thread * streams * each_;
      vec sums[streams];
#pragma GCC unroll 4
      for (extent s = 0; s < streams; ++s) sums[s] = vec(0.0f);
      for (extent r = 0; r < repeats; ++r)
        for (extent i = 0; i < each_; i += line)
#pragma GCC unroll 4
          for (extent s = 0; s < streams; ++s) {
            __builtin_prefetch(p + s * each_ + i + 256, 0, 3);
            for (extent l = 0; l < line; l += vec::size)
              sums[s] += vec::load_unaligned(p + s * each_ + i + l);
          }
#pragma GCC unroll 4
      for (extent s = 1; s < streams; ++s) sums[0] += sums[s];
      float total = cpu::sum<float, cpu::native_arch>(sums[0]);
      benchmark::DoNotOptimize(total);
    });
    // The first one warms the cache.
    return static_cast<double>(repeats * block_.size()) /
           *std::min_element(times.begin() + 1, times.end());
  }

 private:
  static constexpr extent streams = 4, line = cache_line / sizeof(float);

  extent threads_, each_;
  memory block_;
};

}  // namespace fmoe::bench
