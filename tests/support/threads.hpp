// SPDX-License-Identifier: MIT
// Calls f on a number of threads, whatever the machine has; the executor of the tsan build has its
// own number.
#pragma once

#include <fmoe/backend/cpu/parallel.hpp>

#ifndef FMOE_JTHREAD_EXECUTOR
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#endif

namespace fmoe::test {

#ifdef FMOE_JTHREAD_EXECUTOR
void on_threads(int, const auto& f) { f(); }
#else
void on_threads(int threads, const auto& f) {
  tbb::global_control more(tbb::global_control::max_allowed_parallelism, 8);
  tbb::task_arena(threads).execute(f);
}
#endif

}  // namespace fmoe::test
