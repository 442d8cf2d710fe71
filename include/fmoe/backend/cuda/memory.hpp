// SPDX-License-Identifier: MIT
// Memory of a device.
#pragma once

#include <utility>

#include <fmoe/base/checked.hpp>

namespace fmoe::cuda {

template <class Device, class T>
class device_array {
 public:
  device_array(const Device& on, extent size)
      : on_(on),
        data_(static_cast<T*>(on.allocate(size * sizeof(T)))),
        size_(size) {}
  device_array(const device_array&) = delete;
  ~device_array() { on_.release(data_); }

  T* data() const { return data_; }
  extent size() const { return size_; }

 private:
  Device on_;
  T* data_;
  extent size_;
};

}  // namespace fmoe::cuda
