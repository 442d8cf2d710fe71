// SPDX-License-Identifier: MIT
// Rows of the host on their way to a device and back. They pass through pinned memory, from which a
// device copies by itself: while it copies one half, the host fills or empties the other.
#pragma once

#include <algorithm>

#include <fmoe/backend/cuda/memory.hpp>

namespace fmoe::cuda {

template <class T, class Device>
class staging {
  using queue = typename Device::queue;
  using event = typename Device::event;

 public:
  static constexpr extent usual_bytes = extent{4} << 20;

  // Memory for rows of at most so many elements, of which there are at most `all`.
  static extent elements_for(extent longest_row, extent all) {
    return std::max(longest_row, std::min(2 * all, usual_bytes / sizeof(T)));
  }

  staging(const Device& on, extent elements)
      : memory_(on, elements),
        copied_{event(on), event(on)} {}

  // Copies rows of `stride` elements to the device. read(row, to) makes one in the host's memory.
  // The device may still copy when this returns.
  template <class Read>
  void copy_in(queue& work, T* to, extent rows, extent stride, const Read& read) {
    const extent each = rows_of_piece(stride);
    for (extent first = 0; first < rows; first += each) {
      const extent some = std::min(each, rows - first);
      const unsigned n = next_piece(stride);
      for (const unsigned earlier : {n, n + pieces(stride) % 2})  // copies from this memory
        work.wait_on_host(copied_[earlier]);
      T* const here = piece(n);
      for (extent t = 0; t < some; ++t) read(first + t, here + t * stride);
      work.copy_in(to + first * stride, here, some * stride * sizeof(T));
      work.record(copied_[n]);
    }
  }

  // Copies rows from the device. write(row, from) takes one; all of them are taken when this
  // returns.
  template <class Write>
  void copy_out(queue& work, const T* from, extent rows, extent stride, const Write& write) {
    const extent each = rows_of_piece(stride);
    const auto begin = [&](extent first) {
      const unsigned n = next_piece(stride);
      work.copy_out(piece(n), from + first * stride,
                    std::min(each, rows - first) * stride * sizeof(T));
      work.record(copied_[n]);
      return n;
    };
    const bool is_halved = pieces(stride) == 2;
    unsigned now = 0;
    for (extent first = 0; first < rows; first += each) {
      if (first == 0 || !is_halved) now = begin(first);
      const unsigned next = is_halved && first + each < rows ? begin(first + each) : now;
      work.wait_on_host(copied_[now]);
      const T* const here = piece(now);
      for (extent t = 0; t < std::min(each, rows - first); ++t) write(first + t, here + t * stride);
      now = next;
    }
  }

 private:
  // Two pieces, or one if a row is longer than half of the memory.
  unsigned pieces(extent stride) const { return 2 * stride <= memory_.size() ? 2 : 1; }
  extent rows_of_piece(extent stride) const { return memory_.size() / pieces(stride) / stride; }
  T* piece(unsigned n) const { return memory_.data() + n * (memory_.size() / 2); }
  unsigned next_piece(extent stride) {
    last_ = pieces(stride) == 2 ? 1 - last_ : 0;
    return last_;
  }

  pinned_array<Device, T> memory_;
  event copied_[2];  // after the last copy from or to a piece
  unsigned last_ = 0;
};

}  // namespace fmoe::cuda
