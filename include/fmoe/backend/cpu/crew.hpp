// SPDX-License-Identifier: MIT
// Threads that compute the regions of a call one after the other. A region ends when all of its
// tasks have ended, whether the other threads of the crew have come or not. Between two regions the
// others wait awake, but not for long: to wake a thread takes as long as many a region.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include <fmoe/base/compiler.hpp>
#include <fmoe/base/function_ref.hpp>
#include <fmoe/base/memory.hpp>

namespace fmoe::cpu {

class crew {
 public:
  static constexpr extent most = 64;

  // The calling thread alone, whichever that is.
  static crew& alone() {
    static crew one;
    return one;
  }

  // The calling thread, in seat 0, and others up to this number of threads. call(seat) makes
  // another thread run help(seat), some time or never; a crew outlives its helpers.
  crew(extent threads, function_ref<void(extent)> call)
      : size_(std::min(threads, most)),
        call_(call) {}

  crew(const crew&) = delete;

  extent size() const { return size_; }

  // Calls task(i) for each i in [0, tasks) once, in any order. A seat begins with the same tasks in
  // regions of as many tasks, since these are in its thread's cache.
  void run(extent tasks, function_ref<void(extent)> task) noexcept {
    if (size_ == 1 || tasks <= 1) {
      for (extent i = 0; i < tasks; ++i) task(i);
      return;
    }
    seats_ = std::min(size_, tasks);
    tasks_ = tasks;
    task_ = task;
    for (extent s = 0; s < seats_; ++s) seat_[s].next = first_task(s);
    ++region_;  // is odd: open
    for (extent s = 1; s < seats_; ++s)
      if (!seat_[s].is_taken.exchange(true)) call_(s);
    work(0);
    ++region_;  // whoever comes now finds it closed
    wait_for_helpers();
  }

  // Takes part until `end` is called, or until no region comes for a while.
  void help(extent seat) noexcept {
    for (extent seen = 0; wait_for_region(seen);) {
      ++inside_;
      const extent region = region_;
      if (is_open(region) && seat < seats_) work(seat);
      seen = region;
      --inside_;
    }
    seat_[seat].is_taken = false;
  }

  // Sends the helpers away.
  void end() noexcept { has_ended_ = true; }

 private:
  crew() = default;

  static constexpr std::chrono::microseconds patience{40};

  static constexpr auto nobody = [](extent) {};

  struct alignas(cache_line) place {
    std::atomic<extent> next = 0;        // of its tasks
    std::atomic<bool> is_taken = false;  // by a helper that has been called
  };

  static bool is_open(extent region) { return region % 2 != 0; }

  extent first_task(extent seat) const { return tasks_ * seat / seats_; }

  // Runs the tasks of this seat, then those that others have left.
  void work(extent seat) noexcept {
    for (extent s = 0; s < seats_; ++s) {
      const extent from = (seat + s) % seats_, end = first_task(from + 1);
      for (extent i = seat_[from].next++; i < end; i = seat_[from].next++) task_(i);
    }
  }

  // Returns whether there is an open region that this helper has not seen.
  bool wait_for_region(extent seen) const noexcept {
    using clock = std::chrono::steady_clock;
    for (const auto start = clock::now();;) {
      for (unsigned turn = 0; turn < 16; ++turn) {
        if (has_ended_) return false;
        if (const extent region = region_; is_open(region) && region != seen) return true;
        pause_core();
      }
      if (clock::now() - start > patience) return false;
    }
  }

  // It does not wait by std::atomic: of a program that has each kernel for several instruction
  // sets, each part has its own list of who waits, and a helper that runs in one part finds nobody
  // there who waits in another.
  void wait_for_helpers() noexcept {
    for (unsigned turn = 0; turn < 1000; ++turn) {
      if (inside_ == 0) return;
      pause_core();
    }
    while (inside_ != 0) std::this_thread::yield();
  }

  extent size_ = 1, seats_ = 1, tasks_ = 0;
  function_ref<void(extent)> call_ = nobody, task_ = nobody;
  alignas(cache_line) std::atomic<extent> region_ = 0;
  std::atomic<bool> has_ended_ = false;
  alignas(cache_line) std::atomic<int> inside_ = 0;  // helpers that may run tasks
  std::array<place, most> seat_{};
};

}  // namespace fmoe::cpu
