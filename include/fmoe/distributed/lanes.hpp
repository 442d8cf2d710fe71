// SPDX-License-Identifier: MIT
// Spans of tokens go through the steps of a plan in two lanes: one computes, the other exchanges.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fmoe/base/checked.hpp>

namespace fmoe::detail {

// What both lanes know: how many steps each span has behind it, and whether a step failed.
class lane_progress {
 public:
  explicit lane_progress(extent spans) : done_(spans) {}

  // Waits until a span has `steps` steps behind it; returns false if a step of any span failed.
  bool wait(extent span, extent steps) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_[span] == steps || failure_ != nullptr; });
    return failure_ == nullptr;
  }
  void end_step(extent span) {
    const std::lock_guard lock(mutex_);
    ++done_[span];
    changed_.notify_all();
  }
  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::move(failure);
    changed_.notify_all();
  }
  // Only after both lanes have ended.
  void rethrow() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<extent> done_;
  std::exception_ptr failure_;
};

// Calls run(step, span) for all steps of all spans, a span's steps in order. Those that exchange
// run on this thread, and those that compute on another, so that a span computes while the one
// before it exchanges. Either lane takes step after step, and of each step span after span: so all
// ranks make their calls in the same order. Throws what a step throws, when both lanes have ended.
void run_in_lanes(extent steps, extent spans, const auto& exchanges, const auto& run) {
  if (spans == 1) {
    for (extent step = 0; step < steps; ++step) run(step, extent{0});
    return;
  }
  lane_progress progress(spans);
  const auto lane = [&](bool of_exchanges) {
    try {
      for (extent step = 0; step < steps; ++step)
        for (extent span = 0; span < spans && exchanges(step) == of_exchanges; ++span) {
          if (!progress.wait(span, step)) return;
          run(step, span);
          progress.end_step(span);
        }
    } catch (...) {
      progress.fail(std::current_exception());
    }
  };
  std::thread computing([&] { lane(false); });
  lane(true);
  computing.join();
  progress.rethrow();
}

}  // namespace fmoe::detail
