// SPDX-License-Identifier: MIT
// The memory of calls, which take turns with it. A call that has returned may still run on its
// stream: an event says when it is done, and a call on another stream that takes its memory waits
// for that event on the device, not on the host.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <fmoe/backend/cuda/memory.hpp>

namespace fmoe::cuda {

// Space is the memory of a call, made by Space(owner).
template <class Space, class Owner, class Device>
class workspaces {
 public:
  using queue = typename Device::queue;

  // Memory for `ready` calls now, and for others, `most` in all, when they first meet.
  workspaces(const Owner& owner, const Device& on, extent ready, extent most)
      : owner_(owner),
        on_(on),
        most_(most) {
    free_.reserve(ready);
    for (; made_ < ready; ++made_) free_.push_back(std::make_unique<slot>(owner_, on_));
  }
  workspaces(const workspaces&) = delete;

 private:
  struct slot {
    slot(const Owner& owner, const Device& on) : own(on), space(owner), done(on) {}

    own_stream<Device> own;  // of calls that name none
    Space space;
    typename Device::event done;     // after the last call
    bool may_run = false;            // the last call may still run
    CUstream_st* stream = nullptr;   // of the last call
    unsigned long long capture = 0;  // in which the last call is
  };

  static bool is_idle(const slot& s) { return !s.may_run || s.done.has_passed(); }

 public:
  // The memory of one call. Its end gives it back; the call may still run then.
  class lease {
   public:
    lease(workspaces& from, const std::optional<stream_handle>& on)
        : from_(from),
          slot_(from.take(on, is_captured_)),
          stream_(on ? static_cast<CUstream_st*>(on->stream) : slot_->own.handle()) {}
    lease(const lease&) = delete;
    ~lease() {
      slot_->stream = stream_;
      if (!has_ended_) try {
          queue work(from_.on_, stream_);
          slot_->capture = work.capture();
          work.record(slot_->done);
          slot_->may_run = true;
        } catch (const error&) {  // which the next call tells
        }
      from_.give_back(std::move(slot_), is_captured_);
    }

    Space& space() const { return slot_->space; }
    CUstream_st* stream() const { return stream_; }
    // The device has done the call's work.
    void ended() {
      slot_->may_run = false;
      has_ended_ = true;
    }

    // Puts what this call does behind the last one that had its memory. A graph that is captured
    // waits for nothing outside of it. A stream may have the address of one that has ended, so the
    // same address is no reason to omit the wait.
    void queue_behind_last(queue& work) {
      if (slot_->may_run && slot_->capture == work.capture()) work.wait_for(slot_->done);
      has_ended_ = false;
    }

   private:
    workspaces& from_;
    bool is_captured_ = false, has_ended_ = true;
    std::unique_ptr<slot> slot_;
    CUstream_st* stream_;
  };

 private:
  // Prefers memory for which nobody waits. Captured calls share memory that no other call has,
  // because their graph may run at any time.
  std::unique_ptr<slot> take(const std::optional<stream_handle>& on, bool& is_captured) {
    auto* const stream = on ? static_cast<CUstream_st*>(on->stream) : nullptr;
    is_captured = on && queue(on_, stream).capture() != 0;
    std::unique_lock lock(mutex_);
    if (is_captured) {
      released_.wait(lock, [&] { return captured_ != nullptr || !has_captured_; });
      if (captured_ != nullptr) return std::move(captured_);
      auto taken = taken_if([](const slot& s) { return is_idle(s); });
      expects<value_error>(taken != nullptr,
                           "[forward] a captured call keeps memory of its own, and other calls "
                           "have all that the layer has: compile it for more callers");
      has_captured_ = true;
      return taken;
    }
    expects<value_error>(most_ > has_captured_,
                         "[forward] a captured call keeps the memory of the only caller: compile "
                         "the layer for more callers");
    released_.wait(lock, [&] { return !free_.empty() || made_ < most_; });
    if (auto taken = taken_if([&](const slot& s) { return on && s.may_run && s.stream == stream; }))
      return taken;
    if (auto taken = taken_if([](const slot& s) { return is_idle(s); })) return taken;
    if (auto taken = taken_if([](const slot&) { return true; })) return taken;
    free_.reserve(made_ + 1);
    ++made_;
    lock.unlock();
    try {
      return std::make_unique<slot>(owner_, on_);
    } catch (...) {
      lock.lock();
      --made_;
      released_.notify_all();
      throw;
    }
  }

  std::unique_ptr<slot> taken_if(const auto& condition) {
    for (auto& s : free_)
      if (condition(*s)) {
        std::swap(s, free_.back());
        auto taken = std::move(free_.back());
        free_.pop_back();
        return taken;
      }
    return nullptr;
  }

  void give_back(std::unique_ptr<slot> s, bool is_captured) {
    {
      const std::lock_guard lock(mutex_);
      if (is_captured) captured_ = std::move(s);
      else free_.push_back(std::move(s));
    }
    released_.notify_all();
  }

  const Owner& owner_;
  const Device& on_;
  extent most_, made_ = 0;
  std::mutex mutex_;
  std::condition_variable released_;
  std::vector<std::unique_ptr<slot>> free_;  // which no call has that is on its way
  std::unique_ptr<slot> captured_;           // of captured calls
  bool has_captured_ = false;
};

}  // namespace fmoe::cuda
