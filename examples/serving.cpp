// SPDX-License-Identifier: MIT
// serving [SECONDS] serves one trained layer to 8 threads, in three ways, and prints how long their
// calls take. Then it changes the layer while the threads go on calling.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <tbb/task_arena.h>

#include <fmoe/io/safetensors.hpp>
#include <fmoe/model.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;
using seconds = std::chrono::duration<double>;

namespace {

constexpr std::size_t most_tokens = 64, clients = 8;

// What all threads call. A call that has begun keeps the model that it has taken.
class service {
 public:
  explicit service(model m) : current_(std::move(m)) {}

  model current() const {
    const std::lock_guard lock(mutex_);
    return current_;
  }
  void replace(model m) {
    const std::lock_guard lock(mutex_);
    current_ = std::move(m);
  }

 private:
  mutable std::mutex mutex_;
  model current_;
};

// Calls from all clients at once, with 1 to 64 tokens, and prints the median of the time of a call,
// the time that 1% of the calls exceed, and the tokens of a second.
void measure(const char* way, const service& served, seconds length, int threads_a_call) {
  std::vector<std::vector<double>> times(clients);
  std::atomic<std::size_t> tokens = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto end = begin + length;
  std::vector<std::future<void>> calls;  // std::jthread is in libc++ since release 20 only
  for (std::size_t c = 0; c < clients; ++c)
    calls.push_back(std::async(std::launch::async, [&, c] {
      tbb::task_arena arena(threads_a_call);
      arena.execute([&] {
        for (std::size_t n = 1 + c; std::chrono::steady_clock::now() < end;
             n = n * 7 % most_tokens + 1) {
          const model forward = served.current();
          const tensor<float, 2> x({n, forward.inputs()});
          tensor<float, 2> y({n, forward.outputs()});
          const auto start = std::chrono::steady_clock::now();
          forward(x, y);
          times[c].push_back(seconds(std::chrono::steady_clock::now() - start).count());
          tokens += n;
        }
      });
    }));
  calls.clear();
  std::vector<double> all;
  for (const auto& t : times) all.insert(all.end(), t.begin(), t.end());
  std::ranges::sort(all);
  const double taken = seconds(std::chrono::steady_clock::now() - begin).count();
  std::printf("%-34s %8.3f ms %8.3f ms %10.0f\n", way, 1e3 * all[all.size() / 2],
              1e3 * all[all.size() * 99 / 100], static_cast<double>(tokens) / taken);
}

}  // namespace

int main(int argc, char** argv) {
  const seconds length(argc > 1 ? std::atof(argv[1]) : 0.1);
  const auto layer = load<mxd<>>("examples/data/minilm_l3_mxd_bf16.safetensors");
  const auto threads = static_cast<int>(std::thread::hardware_concurrency());
  std::printf("%zu clients, %d hardware threads\n%-34s %11s %11s %10s\n", clients, threads, "",
              "median", "99%", "tokens/s");

  // A compiled layer has memory for the threads of the arena in which it is compiled.
  const auto compiled_for = [&](int threads_a_call, const compile_options& options) {
    return tbb::task_arena(threads_a_call).execute([&] {
      return model(layer, most_tokens, options);
    });
  };
  measure("one call at a time, all threads", service(compiled_for(threads, {.callers = 1})), length,
          threads);
  measure("calls as they come, all threads", service(compiled_for(threads, {})), length, threads);
  measure("calls as they come, one thread", service(compiled_for(1, {})), length, 1);

  // Another layer takes over while the clients call: no call fails, and none waits for it.
  service served(compiled_for(1, {}));
  const auto reload = std::async(std::launch::async, [&] {
    for (int i = 0; i < 4; ++i) {
      std::this_thread::sleep_for(length / 5);
      auto next = layer;
      next.active = layer.active / 2;
      served.replace(tbb::task_arena(1).execute([&] { return model(next, most_tokens); }));
    }
  });
  measure("the same, with 4 reloads", served, length, 1);
}
