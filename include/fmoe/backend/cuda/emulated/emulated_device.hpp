// SPDX-License-Identifier: MIT
// The CPU in a GPU's place: its memory, and a queue that runs each kernel when it is launched.
#pragma once

#include <cstring>
#include <new>

#include <fmoe/backend/cuda/emulated/block.hpp>

namespace fmoe::cuda {

class emulated_device {
 public:
  explicit emulated_device(const device_options& options) : order_(options.order) {}

  std::string name() const { return "emulated on the CPU, since there is no GPU"; }
  std::string key() const { return "emulated"; }

  // Memory holds NaN until it is written.
  void* allocate(extent bytes) const {
    void* const p = ::operator new(bytes, std::align_val_t{256});
    return std::memset(p, 0xff, bytes);
  }
  void release(void* p) const noexcept { ::operator delete(p, std::align_val_t{256}); }

  // The work of one caller, in order.
  class queue {
   public:
    explicit queue(const emulated_device& on) : runner_(on.order_) {}

    void copy_in(void* device, const void* host, extent bytes) {
      if (bytes != 0) std::memcpy(device, host, bytes);
    }
    void copy_out(void* host, const void* device, extent bytes) {
      if (bytes != 0) std::memcpy(host, device, bytes);
    }
    void wait() {}

    // Runs a kernel as so many blocks; `step` names it in errors.
    template <class Kernel>
    void launch(const char* step, const Kernel& kernel, extent blocks) {
      run_emulated(runner_, {step, Kernel::threads, Kernel::shared_bytes, blocks}, kernel);
    }
    // Calls f(i) for i < n; its threads never meet.
    template <class F>
    void each(const char*, const F& f, extent n) {
      for (extent i = 0; i < n; ++i) f(i);
    }

   private:
    block_runner runner_;
  };

 private:
  thread_order order_;
};

}  // namespace fmoe::cuda
