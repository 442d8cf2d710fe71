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
  explicit memory(extent bytes) {
    const bool has_huge_pages = huge_page != 0 && bytes >= huge_page;
    const auto alignment = std::align_val_t{has_huge_pages ? huge_page : cache_line};
    if (bytes == 0) return;
    const extent whole = round_up(bytes, static_cast<extent>(alignment));
    data_ = {static_cast<std::byte*>(::operator new(whole, alignment)), free_aligned{alignment}};
    if (has_huge_pages) ask_for_huge_pages(data_.get(), whole);
    std::memset(data_.get(), 0, whole);
    size_ = bytes;
  }

  std::byte* data() const { return data_.get(); }
  extent size() const { return size_; }

 private:
  std::unique_ptr<std::byte, free_aligned> data_;
  extent size_ = 0;
};

}  // namespace fmoe::detail
