// SPDX-License-Identifier: MIT
// Running something on a given number of threads, up to 8, however few cores there are.
#pragma once

#ifndef FMOE_JTHREAD_EXECUTOR
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#endif

namespace fmoe::test {

// As many as the executor takes where that is not oneTBB.
#ifdef FMOE_JTHREAD_EXECUTOR
void on_threads(int, const auto& f) { f(); }
#else
void on_threads(int threads, const auto& f) {
  tbb::global_control more(tbb::global_control::max_allowed_parallelism, 8);
  tbb::task_arena(threads).execute(f);
}
#endif

}  // namespace fmoe::test
