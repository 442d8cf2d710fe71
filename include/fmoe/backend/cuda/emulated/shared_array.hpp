// SPDX-License-Identifier: MIT
// Shared memory of an emulated block: numbers that know who reads and writes them between two
// barriers. What the order of threads would decide on a GPU is a fault here, whatever the order is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmoe/base/checked.hpp>

namespace fmoe::cuda {

// A mistake of a kernel, which a GPU would not tell.
struct emulation_fault : std::logic_error {
  using std::logic_error::logic_error;
};

// The thread of a block that runs, and the number of barriers that the block has passed.
struct block_clock {
  unsigned thread = 0, barriers = 0;
};

// An array of the block. All numbers are unwritten when the block begins.
template <class T>
class shared_cells {
 public:
  explicit shared_cells(extent size) : cells_(size) {}

  extent size() const { return cells_.size(); }

  T read(extent i, const block_clock& now) {
    cell& c = at(i);
    expects<emulation_fault>(c.is_written, "reads number ", i,
                             " of a shared array, which no thread has written");
    expects_no_other(c.written, now, "reads", i, "writes");
    c.read.add(now);
    return c.value;
  }

  void write(extent i, T value, const block_clock& now) {
    cell& c = at(i);
    expects_no_other(c.written, now, "writes", i, "writes");
    expects_no_other(c.read, now, "writes", i, "reads");
    c.written.add(now);
    c.is_written = true;
    c.value = value;
  }

  // The number is about to be written, and nobody knows when.
  void forget(extent i, const block_clock& now) {
    write(i, T{}, now);
    cells_[i].is_written = false;
  }

  // Threads may add to a number between the same two barriers, but not read or write it as well.
  void add(extent i, T value, const block_clock& now) {
    const bool was_added = at(i).added_at == now.barriers + 1;
    if (was_added) at(i).written = {};
    write(i, read(i, now) + value, now);
    at(i).read = {};
    at(i).added_at = now.barriers + 1;
  }

 private:
  // The threads that did something with a number since the last barrier: none, one or several.
  struct doers {
    unsigned thread = 0, barriers = 0;
    bool any = false, several = false;

    void add(const block_clock& now) {
      const bool is_new = !any || barriers != now.barriers;
      several = !is_new && (several || thread != now.thread);
      *this = {now.thread, now.barriers, true, several};
    }
    bool has_other(const block_clock& now) const {
      return any && barriers == now.barriers && (several || thread != now.thread);
    }
  };
  struct cell {
    T value{};
    bool is_written = false;
    doers written, read;
    unsigned added_at = 0;  // the barriers before the last addition, and 1
  };

  cell& at(extent i) {
    expects<emulation_fault>(i < cells_.size(), "reaches number ", i, " of a shared array of ",
                             cells_.size());
    return cells_[i];
  }

  static void expects_no_other(const doers& others, const block_clock& now, const char* does,
                               extent i, const char* did) {
    expects<emulation_fault>(!others.has_other(now), does, " number ", i,
                             " of a shared array, which another thread ", did,
                             " with no barrier between them");
  }

  std::vector<cell> cells_;
};

// What a kernel sees of a shared array. It is used like a pointer.
template <class T>
class shared_array {
 public:
  shared_array(shared_cells<T>& cells, const block_clock& now) : cells_(&cells), now_(&now) {}

  class reference {
   public:
    operator T() const { return cells_->read(i_, *now_); }
    reference& operator=(T value) {
      cells_->write(i_, value, *now_);
      return *this;
    }
    reference& operator=(const reference& other) { return *this = static_cast<T>(other); }

   private:
    friend class shared_array;
    reference(shared_cells<T>* cells, const block_clock* now, extent i)
        : cells_(cells),
          now_(now),
          i_(i) {}

    shared_cells<T>* cells_;
    const block_clock* now_;
    extent i_;
  };

  reference operator[](extent i) const { return {cells_, now_, i}; }
  void add(extent i, T value) const { cells_->add(i, value, *now_); }
  void forget(extent i, extent n) const {
    for (extent k = 0; k < n; ++k) cells_->forget(i + k, *now_);
  }

 private:
  shared_cells<T>* cells_;
  const block_clock* now_;
};

}  // namespace fmoe::cuda
