// SPDX-License-Identifier: MIT
// Ranks that are threads of one process: tests, and a job on one machine without MPI.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <fmoe/distributed/communicator.hpp>

namespace fmoe::detail {

// Where the ranks of a job meet: all say what they want, read what the others offer, and leave.
class meeting {
 public:
  explicit meeting(extent size) : offers_(size) {}

  // Waits for all ranks. Returns false if one failed; after the deadline this one has, with the
  // sentence `in_vain`.
  bool come(extent rank, const offer& mine, std::chrono::nanoseconds deadline,
            const std::string& in_vain) {
    std::unique_lock lock(mutex_);
    if (!failure_.empty()) return false;
    offers_[rank] = mine;
    const extent round = round_;
    if (++arrived_ == offers_.size()) {
      arrived_ = 0;
      inside_ = offers_.size();
      ++round_;
      changed_.notify_all();
      return true;
    }
    changed_.wait_for(lock, deadline, [&] { return round_ != round || !failure_.empty(); });
    if (round_ != round) return true;
    if (failure_.empty()) failure_ = in_vain;  // before the lock ends: nobody may come any more
    changed_.notify_all();
    return false;
  }

  // Waits until nobody reads what a rank offers. All ranks are here, so no deadline is needed.
  void leave() {
    std::unique_lock lock(mutex_);
    const extent round = round_;
    if (--inside_ == 0) changed_.notify_all();
    else changed_.wait(lock, [&] { return inside_ == 0 || round_ != round; });
  }

  std::string fail(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = sentence;
    changed_.notify_all();
    return failure_;
  }

  const offer& of(extent rank) const { return offers_[rank]; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<offer> offers_;
  extent arrived_ = 0, inside_ = 0, round_ = 0;
  std::string failure_;
};

}  // namespace fmoe::detail

namespace fmoe {

// A rank that is a thread; run_on_threads makes them.
class thread_communicator final : public communicator {
 public:
  thread_communicator(std::size_t rank, std::size_t size, detail::meeting& where)
      : communicator(rank, size),
        where_(where) {}

 private:
  std::string announce(const std::string& sentence) override { return where_.fail(sentence); }

  void meet(const detail::offer& mine, std::span<const std::size_t> expected,
            detail::function_ref<void(detail::offered_parts)> read) override {
    const std::string in_vain = waited_in_vain(name_of(mine.what));
    if (!where_.come(rank(), mine, deadline, in_vain)) fail(in_vain);  // or what came first
    const std::string fault =
        read_offers([&](std::size_t r) { return where_.of(r); }, mine.what, expected, read);
    where_.leave();
    if (!fault.empty()) fail(fault);
  }

  detail::meeting& where_;
};

// Calls body(communicator&) on as many threads as there are ranks. Throws what they throw.
//
//   run_on_threads(4, [](communicator& ranks) {
//     float one = 1;
//     ranks.all_reduce(std::span(&one, 1));  // 4 on each rank
//   });
inline void run_on_threads(std::size_t ranks, const std::function<void(communicator&)>& body) {
  detail::meeting where(ranks);
  std::exception_ptr thrown;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      thread_communicator rank(r, ranks, where);
      try {
        rank.guarded([&] { body(rank); });
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (thrown == nullptr) thrown = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

}  // namespace fmoe
