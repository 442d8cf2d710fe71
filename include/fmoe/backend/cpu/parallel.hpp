// SPDX-License-Identifier: MIT
// All threads come from here. Tasks are independent and noexcept. A region is isolated: while it
// waits it does not run tasks of other regions, and their cancellation does not stop it.
#pragma once

#include <atomic>

#include <fmoe/backend/cpu/crew.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe::cpu {

// Returns how many threads a region that starts here may use.
extent thread_count();

// Calls f in a region of as many threads as the machine has.
void on_all_threads(function_ref<void()> f);

// Calls task(i) for each i in [0, tasks) once, in any order.
void parallel(extent tasks, function_ref<void(extent)> task);

// Calls f(i) for each i in [0, units) once, in any order, on so many threads.
inline void for_units(extent threads, extent units, function_ref<void(extent)> f) {
  if (threads == 1 || units <= 1) {
    for (extent i = 0; i < units; ++i) f(i);
    return;
  }
  std::atomic<extent> next{0};
  parallel(std::min(threads, units), [&](extent) noexcept {
    for (extent i = next++; i < units; i = next++) f(i);
  });
}

// Calls f with a crew of so many threads, for regions that follow each other.
void with_crew(extent threads, function_ref<void(crew&)> f);

}  // namespace fmoe::cpu

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/backend/cpu/parallel-inl.hpp>
#endif
