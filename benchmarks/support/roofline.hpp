// SPDX-License-Identifier: MIT
// The machine's limits, measured in the process that quotes them: FMA peak and read bandwidth of one thread.
#pragma once

#include <time.h>

#include <algorithm>
#include <vector>

#include <benchmark/benchmark.h>

#include <fmoe/base/memory.hpp>
#include <fmoe/cpu/simd.hpp>

namespace fmoe::bench {

// Seconds of this thread's own time: a neighbour on the core does not count.
inline double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline double median(std::vector<double> v) {
  std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

// fp32 multiply-adds count 2.
inline double peak_flops() {
  using vec = cpu::vec<float, cpu::native>;
  constexpr int chains = 12, steps = 400'000;
  double best = 0;
  for (int round = 0; round < 7; ++round) {
    vec sums[chains], x(0.999f), y(0.001f);
#pragma GCC unroll 12
    for (int i = 0; i < chains; ++i) sums[i] = vec(static_cast<float>(i));
    benchmark::DoNotOptimize(x);  // or the compiler computes it all
    const double start = thread_seconds();
    for (int k = 0; k < steps; ++k)
#pragma GCC unroll 12
      for (int i = 0; i < chains; ++i) sums[i] = cpu::fmadd<float, cpu::native>(sums[i], x, y);
    const double seconds = thread_seconds() - start;
#pragma GCC unroll 12
    for (int i = 1; i < chains; ++i) sums[0] += sums[i];
    float total = cpu::sum<float, cpu::native>(sums[0]);  // an array whose element is named would leave the registers
    benchmark::DoNotOptimize(total);
    best = std::max(best, 2.0 * chains * static_cast<double>(vec::size) * steps / seconds);
  }
  return best;
}

// Bytes a second, read again and again from a buffer of that many bytes, by four streams with prefetch.
inline double read_bandwidth(extent bytes) {
  using vec = cpu::vec<float, cpu::native>;
  constexpr extent streams = 4, line = cache_line / sizeof(float);
  const extent each = std::max(line, bytes / sizeof(float) / streams / line * line);
  const memory block(streams * each * sizeof(float));
  const float* p = reinterpret_cast<const float*>(block.data());
  std::vector<double> rates;
  for (int round = 0; round < 9; ++round) {
    vec sums[streams];
#pragma GCC unroll 4
    for (extent s = 0; s < streams; ++s) sums[s] = vec(0.0f);
    const extent repeats = std::max<extent>(1, (extent{32} << 20) / bytes);
    const double start = thread_seconds();
    for (extent r = 0; r < repeats; ++r)
      for (extent i = 0; i < each; i += line)
#pragma GCC unroll 4
        for (extent s = 0; s < streams; ++s) {
          __builtin_prefetch(p + s * each + i + 256, 0, 3);
          for (extent l = 0; l < line; l += vec::size) sums[s] += vec::load_unaligned(p + s * each + i + l);
        }
    const double seconds = thread_seconds() - start;
#pragma GCC unroll 4
    for (extent s = 1; s < streams; ++s) sums[0] += sums[s];
    float total = cpu::sum<float, cpu::native>(sums[0]);
    benchmark::DoNotOptimize(total);
    if (round > 0) rates.push_back(static_cast<double>(repeats * streams * each * sizeof(float)) / seconds);
  }
  std::ranges::sort(rates);
  return rates[rates.size() * 3 / 4];
}

}  // namespace fmoe::bench
