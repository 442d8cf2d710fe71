// SPDX-License-Identifier: MIT
// The CPU in a GPU's place: its memory, its streams, and queues that run kernels on emulated
// blocks.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>

#include <fmoe/backend/cuda/emulated/block.hpp>
#include <fmoe/backend/cuda/emulated/emulated_memory.hpp>
#include <fmoe/backend/cuda/emulated/emulated_stream.hpp>
#include <fmoe/backend/cuda/launch_limits.hpp>

namespace fmoe::cuda {

// Runners that streams take and give back, because their stacks are large.
class runner_pool {
 public:
  explicit runner_pool(const device_options& options) : options_(options) {}

  std::unique_ptr<block_runner> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(made_ + 1);
      ++made_;
      return std::make_unique<block_runner>(options_.order, options_.tensor_sums);
    }
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
  extent made_ = 0;
  std::vector<std::unique_ptr<block_runner>> free_;
};

class emulated_device {
  struct state;

 public:
  static constexpr bool has_blas = false;

  emulated_device(int number, const device_options& options)
      : state_(std::make_shared<state>(number, options)) {}

  std::string name() const { return "emulated on the CPU, since there is no GPU"; }
  place where() const { return {emulated_name, state_->number}; }
  // Plans are those of an H100. How long emulated blocks take is not known.
  fmoe::machine machine() const {
    fmoe::machine m = h100();
    m.name = name();
    m.gpu.launch = 0;
    return m;
  }

  void* allocate(extent bytes) const {
    expects_no_capture("memory");
    return state_->memory.allocate(bytes);
  }
  // It waits for all work, as CUDA does.
  void release(void* p) const noexcept {
    if (p == nullptr) return;
    try {
      emulated_stream::finish_all();
    } catch (...) {  // nobody asks for the results
    }
    state_->memory.release(p);
  }

  void* allocate_pinned(extent bytes) const {
    expects_no_capture("pinned memory");
    return ::operator new(bytes);
  }
  void release_pinned(void* p) const noexcept { ::operator delete(p); }

  CUstream_st* new_stream() const {
    auto runner = state_->runners.take();
    return reinterpret_cast<CUstream_st*>(
        new emulated_stream(state_->number, state_->streams, std::move(runner)));
  }
  void delete_stream(CUstream_st* stream) const noexcept {
    std::unique_ptr<emulated_stream> s(reinterpret_cast<emulated_stream*>(stream));
    state_->runners.give_back(s->take_runner());
  }

  void begin_capture(CUstream_st* stream) const {
    state_->stream_of(stream).begin_capture(*new emulated_graph);
  }
  void* end_capture(CUstream_st* stream) const { return state_->stream_of(stream).end_capture(); }
  void launch(void* graph, CUstream_st* stream) const {
    state_->stream_of(stream).launch(*static_cast<emulated_graph*>(graph));
  }
  void delete_graph(void* graph) const noexcept { delete static_cast<emulated_graph*>(graph); }

  class event {
   public:
    explicit event(const emulated_device&) {}
    bool has_passed() const { return of_.has_passed(); }

   private:
    friend class emulated_device;
    emulated_event of_;
  };

  // The work of one stream, in order. The default stream is one of the device.
  class queue {
   public:
    queue(const emulated_device& on, CUstream_st* stream)
        : state_(on.state_),
          handle_(stream),
          stream_(state_->stream_of(stream)) {
      if (stream_.device() != state_->number)
        fail_as_cuda("a call", "the stream is of another device");
    }

    CUstream_st* stream() const { return handle_; }
    bool has_warpgroups() const { return true; }

    void copy_in(void* device, const void* host, extent bytes) {
      copy("a copy to the GPU", device, host, bytes);
    }
    void copy_out(void* host, const void* device, extent bytes) {
      copy("a copy from the GPU", host, device, bytes);
    }
    void wait() {
      stream_.finish();
      check("the end of a call");
    }
    void wait_on_host(const event& e) {
      stream_.finish(e.of_);
      check("a copy of the host");
    }
    // Throws if something before has failed; it waits for nothing.
    void check(const char* what) const {
      if (state_->has_failed) fail_as_cuda(what, "unspecified failure");
    }

    void record(event& e) { stream_.record(e.of_); }
    void wait_for(const event& e) { stream_.wait_for(e.of_); }
    // What another stream has been given comes before what this one is given from now on.
    void wait_for(CUstream_st* other, event& now) {
      state_->stream_of(other).record(now.of_);
      stream_.wait_for(now.of_);
    }

    // Returns what tells this capture from others, 0 if the stream is not captured.
    unsigned long long capture() const {
      return reinterpret_cast<std::uintptr_t>(stream_.captured_in());
    }

    // Runs a kernel as so many blocks; `step` names it in errors.
    template <class Kernel>
    void launch(const char* step, const Kernel& kernel, extent blocks) {
      if (blocks == 0) return;
      expects_launch<Kernel>(step, Kernel::threads, Kernel::shared_bytes, blocks);
      stream_.put([step, kernel, blocks](block_runner& runner) {
        run_emulated(runner, {step, Kernel::threads, Kernel::shared_bytes, blocks}, kernel);
      });
      launched(step);
    }
    // Calls f(i) for i < n; its threads never meet.
    template <class F>
    void each(const char* step, const F& f, extent n) {
      if (n == 0) return;
      expects_launch<F>(step, threads_of_each, 0, divide_up(n, extent{threads_of_each}));
      stream_.put([f, n](block_runner& runner) { runner.each(n, f); });
      launched(step);
    }

   private:
    void copy(const char* what, void* to, const void* from, extent bytes) {
      if (bytes == 0) return;
      expects_no_capture(what);
      stream_.put([=](block_runner&) { std::memcpy(to, from, bytes); });
      check(what);
    }
    void launched(const char* step) {
      check(step);
      ++failures.launches;
      if (fails_now(failures.launches_left)) state_->has_failed = true;
    }

    std::shared_ptr<state> state_;
    CUstream_st* handle_;
    emulated_stream& stream_;
  };

 private:
  struct state {
    state(int n, const device_options& options)
        : number(n),
          streams(options.streams),
          memory(n, options.device_memory),
          runners(options),
          default_stream(n, options.streams, runners.take()) {}

    // CUDA has three names of default streams: 0, 1 and 2.
    emulated_stream& stream_of(CUstream_st* handle) {
      return reinterpret_cast<std::uintptr_t>(handle) <= 2
                 ? default_stream
                 : *reinterpret_cast<emulated_stream*>(handle);
    }

    int number;
    stream_order streams;
    emulated_memory memory;
    runner_pool runners;
    emulated_stream default_stream;
    std::atomic<bool> has_failed{false};
  };

  std::shared_ptr<state> state_;
};

}  // namespace fmoe::cuda
