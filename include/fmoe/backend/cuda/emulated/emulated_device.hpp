// SPDX-License-Identifier: MIT
// The CPU in a GPU's place: its memory, and a queue that runs each kernel when it is launched.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include <fmoe/backend/cuda/emulated/block.hpp>

namespace fmoe::cuda {

// Runners that queues take and give back, because their stacks are large.
class runner_pool {
 public:
  explicit runner_pool(const device_options& options) : options_(options) {}

  std::unique_ptr<block_runner> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<block_runner>(options_.order, options_.tensor_sums);
    auto runner = std::move(free_.back());
    free_.pop_back();
    return runner;
  }
  void give_back(std::unique_ptr<block_runner> runner) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(runner));
  }

 private:
  device_options options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<block_runner>> free_;
};

class emulated_device {
 public:
  static constexpr bool has_blas = false;

  explicit emulated_device(const device_options& options)
      : runners_(std::make_shared<runner_pool>(options)) {}

  std::string name() const { return "emulated on the CPU, since there is no GPU"; }
  std::string key() const { return "emulated"; }
  // Plans are those of an H100. How long emulated blocks take is not known.
  fmoe::machine machine() const {
    fmoe::machine m = h100();
    m.name = name();
    m.gpu.launch = 0;
    return m;
  }

  // Memory holds NaN until it is written.
  void* allocate(extent bytes) const {
    void* const p = ::operator new(bytes, std::align_val_t{256});
    return std::memset(p, 0xff, bytes);
  }
  void release(void* p) const noexcept { ::operator delete(p, std::align_val_t{256}); }

  // The work of one caller, in order.
  class queue {
   public:
    explicit queue(const emulated_device& on) : runners_(on.runners_), runner_(runners_->take()) {}
    queue(const queue&) = delete;
    ~queue() { runners_->give_back(std::move(runner_)); }

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
      run_emulated(*runner_, {step, Kernel::threads, Kernel::shared_bytes, blocks}, kernel);
    }
    // Calls f(i) for i < n; its threads never meet.
    template <class F>
    void each(const char*, const F& f, extent n) {
      for (extent i = 0; i < n; ++i) f(i);
    }

   private:
    std::shared_ptr<runner_pool> runners_;
    std::unique_ptr<block_runner> runner_;
  };

 private:
  std::shared_ptr<runner_pool> runners_;
};

}  // namespace fmoe::cuda
