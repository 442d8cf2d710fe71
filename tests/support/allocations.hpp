// SPDX-License-Identifier: MIT
// Counts the allocations of a program and their bytes, and makes one of them fail. allocations.cpp
// replaces operator new in the programs whose tests include this.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

namespace fmoe::test {

extern std::atomic<long> allocations;
extern std::atomic<std::size_t> allocated_bytes;  // in all, whether they were freed or not
extern std::atomic<std::size_t> largest_allocation;

// How many more allocations of this thread succeed; none fails below 0.
extern thread_local long allocations_left;

// oneTBB starts workers when it likes, so the best of several calls counts.
template <class Call>
bool allocates_nothing(Call call) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    const long before = allocations;
    call();
    if (allocations == before) return true;
  }
  return false;
}

// Returns the bytes of the largest allocation of a call.
template <class Call>
std::size_t largest_allocation_of(Call call) {
  largest_allocation = 0;
  call();
  return largest_allocation;
}

// Returns the bytes that a call allocates, whether it frees them or not.
template <class Call>
std::size_t bytes_of_call(Call call) {
  const std::size_t before = allocated_bytes;
  call();
  return allocated_bytes.load() - before;
}

// Makes the first allocation of `call` fail, then the second one, and so on, until the call has no
// more. Before each attempt it calls `prepare`, after each failure `check`; a call may also succeed
// without the memory, as stable_sort does. Returns the number of attempts.
template <class Prepare, class Call, class Check>
long fail_each_allocation(Prepare prepare, Call call, Check check) {
  for (long attempts = 0;; ++attempts) {
    prepare();
    allocations_left = attempts;
    bool failed = false;
    try {
      call();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    const bool has_more = std::exchange(allocations_left, -1) < 0;
    if (failed) check();
    else if (!has_more) return attempts;
  }
}

}  // namespace fmoe::test
