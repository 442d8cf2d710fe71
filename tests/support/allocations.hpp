// SPDX-License-Identifier: MIT
// Counts the allocations of a program and their bytes, and makes one of them fail. It replaces
// operator new, so only one translation unit of a program may include it.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

#include <fmoe/base/checked.hpp>

#include "names.hpp"

namespace {
std::atomic<long> allocations{0};
std::atomic<std::size_t> allocated_bytes{0};  // in all, whether they were freed or not
std::atomic<std::size_t> largest_allocation{0};

// How many more allocations of this thread succeed; none fails below 0.
thread_local long allocations_left = -1;

bool fails_now() { return allocations_left >= 0 && allocations_left-- == 0; }

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (fails_now()) throw std::bad_alloc();
  ++allocations;
  allocated_bytes += bytes;
  std::size_t largest = largest_allocation;
  while (bytes > largest && !largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
  const std::size_t rounded = fmoe::detail::round_up(std::max<std::size_t>(bytes, 1), alignment);
#if defined(_WIN32)  // which has no aligned_alloc
  void* const p = _aligned_malloc(rounded, alignment);
#else
  void* const p = std::aligned_alloc(alignment, rounded);
#endif
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void release(void* p) {  // inlined, g++ would see free() beside new
#if defined(_WIN32)
  _aligned_free(p);
#else
  std::free(p);
#endif
}
}  // namespace

void* operator new(std::size_t n) { return allocate(n, alignof(std::max_align_t)); }
void* operator new(std::size_t n, std::align_val_t a) {
  return allocate(n, static_cast<std::size_t>(a));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {  // stable_sort's buffers
  try {
    return operator new(n);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }

namespace fmoe::test {

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
