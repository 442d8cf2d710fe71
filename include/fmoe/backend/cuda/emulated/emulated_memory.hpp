// SPDX-License-Identifier: MIT
// The memory of emulated devices: which addresses are whose, how much a device has left, and
// failures that tests ask for.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>

#include <fmoe/backend/cuda/device.hpp>

namespace fmoe::cuda {

// Failures of emulated devices that a test asks for: so many allocations or launches go well, and
// the next one fails, an allocation at once and a launch as on a GPU, where somebody sees it later.
struct emulated_failures {
  std::atomic<long> allocations_left{-1}, launches_left{-1};  // below 0: none fails
  std::atomic<long> allocations{0}, launches{0};              // so far
};
inline emulated_failures failures;

inline bool fails_now(std::atomic<long>& left) { return left >= 0 && left-- == 0; }

// The memory of one device, of at most `limit` bytes.
class emulated_memory {
 public:
  emulated_memory(int device, extent limit) : device_(device), limit_(limit) {}

  // The memory holds NaN until it is written. Throws an error if there is not enough.
  void* allocate(extent bytes) {
    ++failures.allocations;
    const bool fails = fails_now(failures.allocations_left);
    if (fails || (used_ += bytes) > limit_) {
      if (!fails) used_ -= bytes;
      throw error("[cuda] " + std::to_string(bytes) + " bytes of memory: out of memory");
    }
    void* p = nullptr;
    try {
      p = ::operator new(bytes, alignment);
      const std::lock_guard lock(all().mutex);
      all().blocks[reinterpret_cast<std::uintptr_t>(p)] = {bytes, device_};
    } catch (const std::bad_alloc&) {
      ::operator delete(p, alignment);
      used_ -= bytes;
      throw;
    }
    return std::memset(p, 0xff, bytes);
  }

  void release(void* p) noexcept {
    const std::lock_guard lock(all().mutex);
    const auto at = all().blocks.find(reinterpret_cast<std::uintptr_t>(p));
    used_ -= at->second.bytes;
    all().blocks.erase(at);
    ::operator delete(p, alignment);
  }

  // Returns the number of the device to whose memory an address belongs.
  static std::optional<int> device_of(const void* p) {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    const std::lock_guard lock(all().mutex);
    auto at = all().blocks.upper_bound(address);
    if (at == all().blocks.begin()) return {};
    --at;
    if (address - at->first > at->second.bytes) return {};
    return at->second.device;
  }

  // Returns the bytes of all devices.
  static extent in_use() {
    const std::lock_guard lock(all().mutex);
    extent n = 0;
    for (const auto& [address, b] : all().blocks) n += b.bytes;
    return n;
  }

 private:
  static constexpr auto alignment = std::align_val_t{256};

  struct block {
    extent bytes;
    int device;
  };
  struct every_block {
    std::mutex mutex;
    std::map<std::uintptr_t, block> blocks;  // by address
  };
  static every_block& all() {
    static every_block& blocks = *new every_block;  // layers may outlive other static objects
    return blocks;
  }

  int device_;
  extent limit_;
  std::atomic<extent> used_{0};
};

}  // namespace fmoe::cuda
