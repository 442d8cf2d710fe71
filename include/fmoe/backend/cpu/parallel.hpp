// SPDX-License-Identifier: MIT
// Only this header names oneTBB, and all threads come from here. Tasks are independent and
// noexcept. A region is isolated: while it waits it does not run tasks of other regions, and their
// cancellation does not stop it.
#pragma once

#include <fmoe/base/checked.hpp>

// The build with tsan defines this: libtbb is not instrumented, so tsan would report races.
#ifdef FMOE_JTHREAD_EXECUTOR
#include <thread>
#include <vector>
#else
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif

namespace fmoe::cpu {

#ifdef FMOE_JTHREAD_EXECUTOR

inline extent thread_count() { return 4; }

template <class Task>
void parallel(extent tasks, const Task& task) {
  std::vector<std::jthread> threads;
  for (extent i = 1; i < tasks; ++i) threads.emplace_back([&task, i] { task(i); });
  if (tasks > 0) task(extent{0});
}

#else

// Returns how many threads a region that starts here may use.
inline extent thread_count() {
  return static_cast<extent>(tbb::this_task_arena::max_concurrency());
}

// Calls task(i) for each i in [0, tasks) once, in any order.
template <class Task>
void parallel(extent tasks, const Task& task) {
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
