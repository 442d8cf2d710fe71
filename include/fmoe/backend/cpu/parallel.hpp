// SPDX-License-Identifier: MIT
// The only header that names oneTBB, and the only place where threads come from. Tasks are
// independent and noexcept; a region is isolated, so it neither runs a stranger's task while it
// waits nor is cut short by a stranger's cancellation.
#pragma once

#include <fmoe/base/checked.hpp>
#include <fmoe/base/function_ref.hpp>

#ifdef FMOE_JTHREAD_EXECUTOR  // the tsan build: libtbb is not instrumented, and its edges would
                              // read as races
#include <thread>
#include <vector>
#else
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif

namespace fmoe::cpu {

#ifdef FMOE_JTHREAD_EXECUTOR

inline extent thread_count() { return 4; }

inline void parallel(extent tasks, function_ref<void(extent)> task) {
  std::vector<std::jthread> threads;
  for (extent i = 1; i < tasks; ++i) threads.emplace_back([&task, i] { task(i); });
  if (tasks > 0) task(extent{0});
}

#else

// Threads that a region started here may use.
inline extent thread_count() {
  return static_cast<extent>(tbb::this_task_arena::max_concurrency());
}

// task(i) for i in [0, tasks), each once, in any order.
inline void parallel(extent tasks, function_ref<void(extent)> task) {
  if (tasks == 1) return task(extent{0});
  tbb::task_group_context context(tbb::task_group_context::isolated);
  context
      .capture_fp_settings();  // workers otherwise compute in the mode that their arena was made in
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(extent{0}, tasks, extent{1}, task, tbb::simple_partitioner{}, context);
  });
}

#endif

}  // namespace fmoe::cpu
