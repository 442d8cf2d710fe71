// SPDX-License-Identifier: MIT
// Measures the CPU that runs the program, in a few milliseconds: arithmetic in registers, and reads
// of a buffer that lies in L2, in L3 or, flushed, in memory.
#pragma once

#include <atomic>
#include <chrono>

#include <fmoe/backend/cpu/caches.hpp>
#include <fmoe/backend/cpu/kernels/amx.hpp>
#include <fmoe/backend/cpu/kernels/simd.hpp>
#include <fmoe/backend/cpu/kernels/tile_product_neon.hpp>
#include <fmoe/backend/cpu/parallel.hpp>
#include <fmoe/base/memory.hpp>
#include <fmoe/planner/machine.hpp>

namespace fmoe::cpu {

// Returns the least seconds of a few runs of task(part) for so many parts at once. A thread that
// sleeps takes longer to begin than a part lasts, so the parts wait for each other, up to a limit.
inline double least_seconds(extent parts, function_ref<void()> prepare,
                            function_ref<void(extent)> task) {
  using clock = std::chrono::steady_clock;
  constexpr int runs = 3;
  constexpr auto longest_wait = std::chrono::microseconds(500);
  double least = 1;
  for (int i = 0; i < runs; ++i) {
    prepare();
    std::atomic<extent> here{0};
    const clock::time_point until = clock::now() + longest_wait;
    std::atomic<clock::time_point> start{until};
    parallel(parts, [&](extent part) noexcept {
      const clock::time_point now = clock::now();
      if (++here == parts && now < until) start = now;
      while (here < parts && clock::now() < until) {
      }
      task(part);
    });
    const std::chrono::duration<double> took = clock::now() - start.load();
    least = std::min(least, took.count());
  }
  return least;
}

// Returns the seconds that a thread takes for one of many calls of added(x, y, sum), which returns
// a new sum, while so many threads do the same.
template <class Arch, class Step>
double seconds_of_step(extent threads, const Step& added) {
  constexpr extent chains = 10, steps = 10'000;
  const auto task = [&](extent) {
    vec<float, Arch> sums[chains], x(0.f), y(0.f);
    for (auto& s : sums) s = vec<float, Arch>(0.f);
    keep_in_register<Arch>(x);
    keep_in_register<Arch>(y);
    for (extent k = 0; k < steps; ++k) {
      FMOE_ROUNDS(10)
      for (extent i = 0; i < chains; ++i) sums[i] = added(x, y, sums[i]);
    }
    FMOE_ROUNDS(10)
    for (extent i = 0; i < chains; ++i) keep_in_register<Arch>(sums[i]);
  };
  return least_seconds(threads, [] {}, task) / (chains * steps);
}

#if FMOE_X86_64 && FMOE_ASSEMBLY
// Returns the seconds that a thread takes for a product of two full tiles of AMX.
inline double seconds_of_tiles(extent threads) {
  constexpr extent steps = 2'000;
  const auto task = [](extent) {
    const tiles_in_use in_use(tile_rows, tile_rows);
    for (extent i = 0; i < steps; ++i) {
      add_tiles<tile_numbers::bf16_pairs, 0, 4, 6>();
      add_tiles<tile_numbers::bf16_pairs, 1, 4, 7>();
      add_tiles<tile_numbers::bf16_pairs, 2, 5, 6>();
      add_tiles<tile_numbers::bf16_pairs, 3, 5, 7>();
    }
  };
  return least_seconds(threads, [] {}, task) / (4 * steps);
}
#endif

// Reads `bytes` from p on, in four streams.
template <class Arch>
void read_all(const std::byte* p, extent bytes) {
  constexpr extent streams = 4, lane = lanes<float, Arch>, line = detail::cache_line;
  const extent each = bytes / (streams * line) * line;
  vec<float, Arch> sums[streams];
  for (auto& s : sums) s = vec<float, Arch>(0.f);
  for (extent i = 0; i < each; i += line) {
    FMOE_ROUNDS(4)
    for (extent s = 0; s < streams; ++s) {
      const std::byte* const from = p + s * each + i;
      FMOE_PREFETCH(from + 1024);
      for (extent at = 0; at < line; at += lane * sizeof(float))
        sums[s] = sums[s] + load<float, Arch>(reinterpret_cast<const float*>(from + at));
    }
  }
  FMOE_ROUNDS(4)
  for (extent s = 0; s < streams; ++s) keep_in_register<Arch>(sums[s]);
}

// The rates of so many threads together.
template <class Arch>
machine_rates measured_rates(extent threads, const machine& m, memory& buffer) {
  const auto t = static_cast<double>(threads), lane = static_cast<double>(lanes<float, Arch>);
  const auto nothing = [] {};
  const auto fma = [](const auto& x, const auto& y, const auto& sum) {
    return fmadd<float, Arch>(x, y, sum);
  };
  const double flops = 2 * lane * t / seconds_of_step<Arch>(threads, fma);
  double int16_dots =
      4 * lane * t /
      (has_fused_dots<Arch>()
           ? seconds_of_step<Arch>(threads, [](auto&... v) { return add_dots<true, Arch>(v...); })
           : seconds_of_step<Arch>(threads,
                                   [](auto&... v) { return add_dots<false, Arch>(v...); }));
  double int8_dots = int16_dots, bf16_dots = flops;
#if FMOE_ASSEMBLY
  if (has_int8_dots<Arch>())
    int8_dots = 8 * lane * t / seconds_of_step<Arch>(threads, [](auto&... v) {
                  return add_int8_dots<Arch>(v...);
                });
#if FMOE_X86_64
  if (has_bf16_dots<Arch>())
    bf16_dots = 4 * lane * t / seconds_of_step<Arch>(threads, [](auto&... v) {
                  return add_bf16_dots<Arch>(v...);
                });
  // A product of tiles of integers takes as long, and a screen takes two, for integers of 16 bits.
  if (has_tiles<Arch>())
    int16_dots = bf16_dots = 2 * tile_rows * tile_rows * 32 * t / seconds_of_tiles(threads);
#else
  const auto of_matrices = [&]<tile_numbers Of>(double products) {
    return products * lane * t /
           seconds_of_step<Arch>(threads, [](auto&... v) { return add_matrices<Of, Arch>(v...); });
  };
  if (has_matrices<tile_numbers::int8_quads, Arch>())
    int8_dots = of_matrices.template operator()<tile_numbers::int8_quads>(16);
  if (has_int8_dots<Arch>()) int16_dots = int8_dots / 2;  // by columns of 8 bits
  if (has_matrices<tile_numbers::bf16_pairs, Arch>())
    bf16_dots = of_matrices.template operator()<tile_numbers::bf16_pairs>(8);
#endif
#endif
  const auto bytes_a_second = [&](extent bytes, extent repeats, function_ref<void()> prepare) {
    const auto task = [&](extent) {
      for (extent r = 0; r < repeats; ++r) read_all<Arch>(buffer.data(), bytes);
    };
    task(0);
    return static_cast<double>(bytes * repeats) * t / least_seconds(threads, prepare, task);
  };
  const auto into_memory = [&] { flush<Arch>(buffer.data(), buffer.size()); };
  // In memory each thread reads a part of its own, because a line that one has read is in L3.
  const extent part = buffer.size() / threads;
  const auto read_part = [&](extent thread) {
    read_all<Arch>(buffer.data() + thread * part, part);
  };
  return {.flops = flops,
          .int16_dots = int16_dots,
          .int8_dots = int8_dots,
          .bf16_dots = bf16_dots,
          .l2 = bytes_a_second(m.l2 / 2, 8, nothing),
          .l3 = bytes_a_second(buffer.size(), 1, nothing),
          .memory = static_cast<double>(part) * t / least_seconds(threads, into_memory, read_part)};
}

// Returns the machine that runs this program, which is measured at the first call.
template <class Arch>
const machine& this_machine() {
  static const machine measured = [] {
    machine m;
    find_caches(m);
    on_all_threads([&] {
      m.threads = thread_count();
      memory buffer(std::max(3 * m.l2, m.threads * (extent{256} << 10)));
      m.one = measured_rates<Arch>(1, m, buffer);
      m.every = m.threads == 1 ? m.one : measured_rates<Arch>(m.threads, m, buffer);
    });
    return m;
  }();
  return measured;
}

}  // namespace fmoe::cpu
