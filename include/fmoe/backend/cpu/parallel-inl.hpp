// SPDX-License-Identifier: MIT
// Threads of oneTBB, which only this header names.
#pragma once

#include <fmoe/backend/cpu/parallel.hpp>
#include <fmoe/base/vector.hpp>

// The build with tsan defines this: libtbb is not instrumented, so tsan would report races.
#ifdef FMOE_JTHREAD_EXECUTOR
#include <thread>
#include <utility>
#else
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>
#endif

namespace fmoe::cpu {

#ifdef FMOE_JTHREAD_EXECUTOR

FMOE_INLINE extent thread_count() { return 4; }

// std::jthread, which libc++ does not have before release 20.
class joined_threads {
 public:
  joined_threads() = default;
  joined_threads(const joined_threads&) = delete;
  ~joined_threads() { join(); }
  void start(auto task) { threads_.emplace_back(std::move(task)); }
  void join() {
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }

 private:
  vector<std::thread> threads_;
};

FMOE_INLINE void on_all_threads(function_ref<void()> f) { f(); }

FMOE_INLINE void parallel(extent tasks, function_ref<void(extent)> task) {
  joined_threads threads;
  for (extent i = 1; i < tasks; ++i) threads.start([task, i] { task(i); });
  if (tasks > 0) task(extent{0});
}

FMOE_INLINE void with_crew(extent threads, function_ref<void(crew&)> f) {
  if (threads == 1) return f(crew::alone());
  joined_threads helpers;
  crew* here = nullptr;
  const auto call = [&](extent seat) { helpers.start([=] { here->help(seat); }); };
  crew all(threads, call);
  here = &all;
  f(all);
  all.end();
  helpers.join();
}

#else

FMOE_INLINE extent thread_count() {
  return static_cast<extent>(tbb::this_task_arena::max_concurrency());
}

FMOE_INLINE void on_all_threads(function_ref<void()> f) {
  tbb::task_arena all;
  all.execute(f);
}

// Calls f with a context for tasks.
FMOE_INLINE void isolated(function_ref<void(tbb::task_group_context&)> f) {
  tbb::task_group_context context(tbb::task_group_context::isolated);
  // Otherwise workers would compute in the floating-point mode in which their arena was made.
  context.capture_fp_settings();
  tbb::this_task_arena::isolate([&] { f(context); });
}

FMOE_INLINE void parallel(extent tasks, function_ref<void(extent)> task) {
  if (tasks == 1) return task(extent{0});
  isolated([&](tbb::task_group_context& context) {
    tbb::parallel_for(extent{0}, tasks, extent{1}, task, tbb::simple_partitioner{}, context);
  });
}

FMOE_INLINE void with_crew(extent threads, function_ref<void(crew&)> f) {
  if (threads == 1) return f(crew::alone());
  isolated([&](tbb::task_group_context& context) {
    tbb::task_group helpers(context);
    crew* here = nullptr;
    const auto call = [&](extent seat) { helpers.run([=] { here->help(seat); }); };
    crew all(threads, call);
    here = &all;
    f(all);
    all.end();
    helpers.wait();
  });
}

#endif

}  // namespace fmoe::cpu
