// SPDX-License-Identifier: MIT
// What storage.hpp declares.
#pragma once

#include <memory>

#include <fmoe/arrays/storage.hpp>

namespace fmoe::detail {

FMOE_INLINE elements::~elements() = default;

}  // namespace fmoe::detail

namespace fmoe {

FMOE_INLINE storage::storage(std::size_t bytes)
    : elements_(std::make_shared<detail::elements>(bytes)) {}

FMOE_INLINE void* storage::written() {
  // Copies share no elements that were lent, and whoever has a pointer may hold them.
  const bool is_shared = elements_->is_borrowed() || (!is_unwatched() && elements_.use_count() > 1);
  if (is_shared && !writes_borrowed_) elements_ = std::make_shared<detail::elements>(*elements_);
  was_written();
  return data();
}

}  // namespace fmoe
