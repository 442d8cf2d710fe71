// SPDX-License-Identifier: MIT
// Memory and streams of a device, which end with their owners.
#pragma once

#include <utility>

#include <fmoe/backend/cuda/device.hpp>

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

// Memory of the host that the device copies without the host's help.
template <class Device, class T>
class pinned_array {
 public:
  pinned_array(const Device& on, extent size)
      : on_(on),
        data_(static_cast<T*>(on.allocate_pinned(size * sizeof(T)))),
        size_(size) {}
  pinned_array(const pinned_array&) = delete;
  ~pinned_array() { on_.release_pinned(data_); }

  T* data() const { return data_; }
  extent size() const { return size_; }

 private:
  Device on_;
  T* data_;
  extent size_;
};

template <class Device>
class own_stream {
 public:
  explicit own_stream(const Device& on) : on_(on), handle_(on_.new_stream()) {}
  own_stream(const own_stream&) = delete;
  ~own_stream() { on_.delete_stream(handle_); }

  CUstream_st* handle() const { return handle_; }

 private:
  Device on_;
  CUstream_st* handle_;
};

}  // namespace fmoe::cuda
