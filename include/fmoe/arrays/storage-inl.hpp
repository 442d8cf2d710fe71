// SPDX-License-Identifier: MIT
// What storage.hpp declares.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <fmoe/arrays/storage.hpp>

namespace fmoe::detail {

FMOE_INLINE std::optional<extent> permuted_array::stride_of(extent length, extent row_major) const {
  extent stride = 1;
  for (extent axis = shape.size(); axis-- > 0; stride *= shape[axis])
    if (shape[axis] == length && stride == row_major) return strides[axis];
  return {};
}

FMOE_INLINE elements::elements(permuted_array from)
    : owned_(memory::unwritten(element_count(from.shape) * from.element_bytes)),
      data_(owned_.data()),
      bytes_(owned_.size()),
      permuted_(std::make_shared<const permuted_array>(std::move(from))),
      is_permuted_(true) {}

FMOE_INLINE elements::~elements() = default;

FMOE_INLINE std::shared_ptr<const permuted_array> elements::permuted() const {
  if (!is_permuted_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(copying_);
  return permuted_;
}

FMOE_INLINE void elements::copy_permuted() const {
  const std::lock_guard lock(copying_);
  if (permuted_ == nullptr) return;
  permuted_->copy(*permuted_, address());
  permuted_ = nullptr;
  is_permuted_.store(false, std::memory_order_release);
}

}  // namespace fmoe::detail

namespace fmoe {

FMOE_INLINE storage::storage(std::size_t bytes)
    : elements_(std::make_shared<detail::elements>(bytes)) {}
FMOE_INLINE storage::storage(detail::permuted_array from)
    : elements_(std::make_shared<detail::elements>(std::move(from))) {}

FMOE_INLINE void* storage::written() {
  // Copies share no elements that were lent, and whoever has a pointer may hold them.
  const bool is_shared = elements_->is_borrowed() || (!is_unwatched() && elements_.use_count() > 1);
  if (is_shared && !writes_borrowed_) elements_ = std::make_shared<detail::elements>(*elements_);
  was_written();
  return data();
}

}  // namespace fmoe
