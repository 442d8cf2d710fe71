// SPDX-License-Identifier: MIT
// Runs the blocks of a kernel one after the other on one thread of the CPU, in the order in which
// threads take turns: no block may need what another one of its launch makes. Each thread of a
// block is a fiber, which runs until it waits for others. A thread that would wait forever, or that
// meets others in another operation, is a fault.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/emulated/fiber.hpp>
#include <fmoe/backend/cuda/emulated/shared_array.hpp>

namespace fmoe::cuda {

// A kernel as it is launched: its blocks, and the resources of each.
struct launch_shape {
  const char* name;
  unsigned threads;  // of a block, in whole warps
  extent shared_bytes;
  extent blocks = 1;
};

// An operation in which threads meet, and where the kernel calls it.
struct meeting_point {
  const char* what = nullptr;
  const char* file = nullptr;
  unsigned line = 0;

  bool operator==(const meeting_point&) const = default;
  std::string text() const {
    const std::string path = file;
    return std::string(what) + " (" + path.substr(path.rfind('/') + 1) + ':' +
           std::to_string(line) + ')';
  }
};

// Its address stands for T, also in a program without RTTI.
template <class T>
inline constexpr char type_of_cells{};

class block_runner {
 public:
  static constexpr unsigned lanes = 32;

  explicit block_runner(thread_order order = thread_order::ascending,
                        tensor_sums sums = tensor_sums::rounded)
      : order_(order),
        sums_(sums) {}
  block_runner(const block_runner&) = delete;

  // Runs `body` as every thread of every block. It asks this runner which thread it is.
  void run(const launch_shape& shape, function_ref<void()> body) {
    shape_ = shape;
    expects<emulation_fault>(shape.threads % lanes == 0 && shape.threads != 0, "emulated ",
                             shape.name, ": blocks of ", shape.threads,
                             " threads are not whole warps");
    while (fibers_.size() < shape.threads) fibers_.push_back(std::make_unique<fiber>());
    each(shape.blocks, [&](extent block) {
      block_ = block;
      run_block(body);
    });
  }

  // Calls f(i) for i < n, in the runner's order.
  template <class F>
  void each(extent n, const F& f) {
    // From a random place on in steps that have no divisor in common with n.
    extent at = 0, step = 1;
    if (order_ == thread_order::shuffled && n > 1) {
      at = random_() % n;
      for (step = 1 + random_() % n; std::gcd(step, n) != 1;) ++step;
    }
    for (extent i = 0; i < n; ++i) {
      f(order_ == thread_order::descending ? n - 1 - i : at);
      at = (at + step) % n;
    }
  }

  unsigned thread() const { return now_.thread; }
  extent block() const { return block_; }
  tensor_sums sums() const { return sums_; }

  // Returns the shared array number `count` that the thread asks for.
  template <class T>
  shared_array<T> array(extent count, extent size) {
    if (count == arrays_.size()) {
      shared_bytes_ += round_up(size * sizeof(T), extent{16});
      expects<emulation_fault>(shared_bytes_ <= shape_.shared_bytes, "takes ", shared_bytes_,
                               " bytes of shared memory and asks for ", shape_.shared_bytes);
      arrays_.push_back({&type_of_cells<T>, std::make_shared<shared_cells<T>>(size)});
    }
    const auto& [type, cells] = arrays_[count];
    expects<emulation_fault>(type == &type_of_cells<T>, "sees a shared array as two types");
    auto& made = *static_cast<shared_cells<T>*>(cells.get());
    expects<emulation_fault>(made.size() == size, "sees a shared array of ", made.size(),
                             " numbers as one of ", size);
    return {made, now_};
  }

  // Begins to copy a number; commit() ends a group of the thread's copies, and wait() ends copies
  // until no more than the last `left` groups are under way.
  template <class T>
  void copy(const shared_array<T>& to, extent i, T value) {
    static_assert(sizeof(shared_array<T>) <= sizeof(copy_under_way::to) && sizeof(T) <= 8);
    to.begin_copy(i);
    copy_under_way c;
    c.i = i;
    std::memcpy(c.to, &to, sizeof to);
    std::memcpy(c.value, &value, sizeof value);
    c.end = [](const copy_under_way& x) {
      T number;
      std::memcpy(&number, x.value, sizeof number);
      reinterpret_cast<const shared_array<T>*>(x.to)->end_copy(x.i, number);
    };
    copies_[thread()].all.push_back(c);
  }
  void commit() {
    copies& mine = copies_[thread()];
    mine.ends.push_back(mine.all.size());
  }
  void wait(extent left) {
    copies& mine = copies_[thread()];
    if (mine.ends.size() <= left) return;
    const extent groups = mine.ends.size() - left, ended = mine.ends[groups - 1];
    for (extent c = 0; c < ended; ++c) mine.all[c].end(mine.all[c]);
    mine.all.erase(mine.all.begin(), mine.all.begin() + static_cast<std::ptrdiff_t>(ended));
    mine.ends.erase(mine.ends.begin(), mine.ends.begin() + static_cast<std::ptrdiff_t>(groups));
    for (extent& end : mine.ends) end -= ended;
  }

  // Waits for all threads of the block, and returns how many of them say yes.
  unsigned meet_block(bool yes, const meeting_point& where) {
    const extent turn = all_.turn;
    counts_[turn % 2] += yes;
    meet(all_, shape_.threads, where);
    return counts_[turn % 2];
  }

  // Waits for all threads of the warp, and returns what each of them says. The last one calls
  // `then` with it before any of them goes on.
  const std::uint64_t* meet_warp(std::uint64_t word, const meeting_point& where,
                                 function_ref<void(const std::uint64_t*)> then = nothing) {
    meeting& warp = warps_[thread() / lanes];
    // Lists take turns, because a quick thread speaks again before a slow one has listened.
    std::uint64_t* const list = warp.words[warp.turn % 2].data();
    list[thread() % lanes] = word;
    if (warp.arrived == lanes - 1 && warp.where == where) then(list);
    meet(warp, lanes, where);
    return list;
  }

 private:
  static constexpr auto nothing = [](const std::uint64_t*) {};

  struct meeting {
    unsigned arrived = 0;
    extent turn = 0;
    meeting_point where{};
    std::array<std::array<std::uint64_t, lanes>, 2> words{};
  };
  struct copy_under_way {
    extent i = 0;
    alignas(8) std::byte to[2 * sizeof(void*)], value[8];
    void (*end)(const copy_under_way&) = nullptr;
  };
  struct copies {  // of one thread
    std::vector<copy_under_way> all;
    std::vector<extent> ends;  // of groups
  };
  struct typed_array {
    const char* type;
    std::shared_ptr<void> cells;
  };

  void run_block(function_ref<void()> body) {
    now_ = {};
    all_ = {};
    warps_.assign(shape_.threads / lanes, {});
    counts_ = {};
    arrays_.clear();
    copies_.resize(std::max<extent>(copies_.size(), shape_.threads));
    for (copies& c : copies_) c = {};
    shared_bytes_ = 0;
    ended_ = 0;
    turns_.resize(shape_.threads);
    std::iota(turns_.begin(), turns_.end(), 0u);
    if (order_ == thread_order::descending) std::ranges::reverse(turns_);
    for (unsigned t = 0; t < shape_.threads; ++t) fibers_[t]->start(body);
    waits_.assign(shape_.threads, {});
    while (ended_ < shape_.threads) {
      const extent before = progress();
      if (order_ == thread_order::shuffled) std::ranges::shuffle(turns_, random_);
      for (const unsigned t : turns_) run_thread(t);
      if (progress() == before) fail_for_ever();
    }
  }

  void run_thread(unsigned t) {
    fiber& f = *fibers_[t];
    if (f.has_ended()) return;
    now_.thread = t;
    try {
      f.resume();
    } catch (const emulation_fault& fault) {
      fail_in(t, fault.what());
    }
    ended_ += f.has_ended();
  }

  [[noreturn]] void fail_in(unsigned t, std::string_view what) const {
    fail<emulation_fault>("emulated ", shape_.name, ": thread ", t, " of block ", block_, ' ',
                          what);
  }

  // Each thread has ended, or waits for others that do not come.
  [[noreturn]] void fail_for_ever() const {
    for (unsigned t = 0; t < shape_.threads; ++t)
      if (!fibers_[t]->has_ended())
        fail_in(t, "waits in " + waits_[t].text() + " for threads that never come");
    std::terminate();
  }

  extent progress() const {
    extent n = ended_ + all_.turn;
    for (const meeting& w : warps_) n += w.turn;
    return n;
  }

  void meet(meeting& m, unsigned members, const meeting_point& where) {
    if (m.arrived == 0) m.where = where;
    if (m.where != where)
      fail<emulation_fault>("is in ", where.text(), " while others wait in ", m.where.text());
    if (++m.arrived == members) {
      m.arrived = 0;
      ++m.turn;
      if (&m == &all_) {
        ++now_.barriers;
        counts_[m.turn % 2] = 0;  // which all threads have read
      }
      return;
    }
    const unsigned me = now_.thread;
    waits_[me] = where;
    for (const extent turn = m.turn; m.turn == turn;) fibers_[me]->pause();
  }

  thread_order order_;
  tensor_sums sums_;
  std::mt19937 random_{1};
  launch_shape shape_{};
  extent block_ = 0;
  unsigned ended_ = 0;
  block_clock now_;
  meeting all_;
  std::vector<meeting> warps_;
  std::array<unsigned, 2> counts_{};
  std::vector<std::unique_ptr<fiber>> fibers_;
  std::vector<unsigned> turns_;
  std::vector<meeting_point> waits_;  // by thread: where it waited last
  std::vector<typed_array> arrays_;
  std::vector<copies> copies_;  // by thread
  extent shared_bytes_ = 0;
};

}  // namespace fmoe::cuda
