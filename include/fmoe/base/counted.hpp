// SPDX-License-Identifier: MIT
// Objects that many share, held by one pointer: moving it emits two instructions in a user's unit
// where std::shared_ptr moves two pointers, and dropping it is one call.
#pragma once

#include <atomic>
#include <utility>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe::detail {

// The base of a shared object. It counts its holders, and the last one deletes it.
class counted {
 public:
  counted() = default;
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  virtual ~counted() = default;

  void hold() const { holders_.fetch_add(1, std::memory_order_relaxed); }
  FMOE_NOINLINE void drop() const {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  mutable std::atomic<extent> holders_ = 0;
};

// Holds an object whose class derives from counted, or nothing.
template <class T>
class counted_ptr {
 public:
  counted_ptr() = default;
  explicit counted_ptr(const T* object) : object_(object) {
    if (object_ != nullptr) object_->hold();
  }
  counted_ptr(const counted_ptr& other) : counted_ptr(other.object_) {}
  counted_ptr(counted_ptr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  counted_ptr& operator=(counted_ptr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~counted_ptr() {
    if (object_ != nullptr) object_->drop();
  }

  const T* get() const { return object_; }
  const T* operator->() const { return object_; }

 private:
  const T* object_ = nullptr;
};

}  // namespace fmoe::detail
