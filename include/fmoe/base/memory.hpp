// SPDX-License-Identifier: MIT
// Zeroed memory, aligned to a cache line. On Linux it is aligned to a huge page from 2 MB on and
// asks the kernel for huge pages: packed weights on them are read 10-20% faster
// (docs/performance.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/platform.hpp>

namespace fmoe::detail {

inline constexpr extent cache_line = 64;

struct free_aligned {
  std::align_val_t alignment{};
  void operator()(std::byte* p) const { ::operator delete(p, alignment); }
};

class memory {
 public:
  memory() = default;
  explicit memory(extent bytes) : memory(unwritten(bytes)) {
    if (bytes > 0) std::memset(data_.get(), 0, whole(bytes));
  }

  // The same without zeros: large memory takes no pages until it is written.
  static memory unwritten(extent bytes) {
    memory m;
    if (bytes == 0) return m;
    const extent size = whole(bytes);
    m.data_ = {static_cast<std::byte*>(::operator new(size, alignment(bytes))),
               free_aligned{alignment(bytes)}};
    if (has_huge_pages(bytes)) ask_for_huge_pages(m.data_.get(), size);
    m.size_ = bytes;
    return m;
  }

  std::byte* data() const { return data_.get(); }
  extent size() const { return size_; }

 private:
  static bool has_huge_pages(extent bytes) { return huge_page != 0 && bytes >= huge_page; }
  static std::align_val_t alignment(extent bytes) {
    return std::align_val_t{has_huge_pages(bytes) ? huge_page : cache_line};
  }
  static extent whole(extent bytes) {
    return round_up(bytes, static_cast<extent>(alignment(bytes)));
  }

  std::unique_ptr<std::byte, free_aligned> data_;
  extent size_ = 0;
};

}  // namespace fmoe::detail
