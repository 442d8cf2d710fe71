// SPDX-License-Identifier: MIT
#include "allocations.hpp"

#include <algorithm>
#include <cstdlib>

namespace fmoe::test {

std::atomic<long> allocations{0};
std::atomic<std::size_t> allocated_bytes{0}, largest_allocation{0};
thread_local long allocations_left = -1;

namespace {

bool fails_now() { return allocations_left >= 0 && allocations_left-- == 0; }

void count(std::size_t bytes) {
  if (fails_now()) throw std::bad_alloc();
  ++allocations;
  allocated_bytes += bytes;
  std::size_t largest = largest_allocation;
  while (bytes > largest && !largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
}

// On Windows the C++ library may be a DLL, which keeps operators of its own: libstdc++'s strings
// are allocated there and freed here. So every form uses the function of the C library that it
// uses.
void* allocate(std::size_t bytes) {
  count(bytes);
  void* const p = std::malloc(std::max<std::size_t>(bytes, 1));
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* allocate(std::size_t bytes, std::size_t alignment) {
  count(bytes);
  bytes = std::max<std::size_t>(bytes, 1);
  void* p = nullptr;
#if defined(_WIN32)  // which has no POSIX
  p = _aligned_malloc(bytes, alignment);
#else
  // aligned_alloc would round the size up, and the address sanitizer would miss what lies between.
  if (posix_memalign(&p, std::max(alignment, sizeof(void*)), bytes) != 0) p = nullptr;
#endif
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void release(void* p) {  // inlined, g++ would see free() beside new
  std::free(p);
}
[[gnu::noinline]] void release_aligned(void* p) {
#if defined(_WIN32)
  _aligned_free(p);
#else
  std::free(p);
#endif
}
}  // namespace
}  // namespace fmoe::test

using fmoe::test::allocate, fmoe::test::release, fmoe::test::release_aligned;

void* operator new(std::size_t n) { return allocate(n); }
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
void operator delete(void* p, std::align_val_t) noexcept { release_aligned(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release_aligned(p); }
