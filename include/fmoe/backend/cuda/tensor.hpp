// SPDX-License-Identifier: MIT
// Arrays in the memory of a GPU: tensors that own it, and views of a program's own memory. Calls
// take them as they take arrays of the host.
#pragma once

#include <array>

#include <fmoe/arrays/interop.hpp>
#include <fmoe/backend/cuda/device.hpp>

namespace fmoe::cuda {

// A row-major array in memory of its own. The elements are not set.
template <class T, std::size_t Rank>
class tensor {
 public:
  using value_type = T;

  tensor(const std::array<std::size_t, Rank>& shape, std::shared_ptr<const processor> on)
      : shape_(shape),
        on_(std::move(on)) {
    size_ = detail::element_count(shape);
    data_ = static_cast<T*>(on_->allocate(bytes()));
  }
  // The same with the extents in braces, which g++ 14 would take for a tensor of the host, too.
  tensor(const std::size_t (&extents)[Rank], std::shared_ptr<const processor> on)
      : tensor(std::to_array(extents), std::move(on)) {}
  // A copy of an array of the host.
  template <detail::array_operand A>
  tensor(const A& a, std::shared_ptr<const processor> on)
      : tensor(fmoe::to_tensor<Rank>(a), std::move(on)) {}
  tensor(const fmoe::tensor<T, Rank>& a, std::shared_ptr<const processor> on)
      : tensor(a.shape(), std::move(on)) {
    copy_from(a);
  }
  tensor(tensor&& other) noexcept
      : shape_(other.shape_),
        size_(other.size_),
        on_(std::move(other.on_)),
        data_(std::exchange(other.data_, nullptr)) {}
  tensor& operator=(tensor other) noexcept {
    std::swap(shape_, other.shape_);
    std::swap(size_, other.size_);
    std::swap(on_, other.on_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~tensor() {
    if (data_ != nullptr) on_->release(data_);
  }

  const std::array<std::size_t, Rank>& shape() const { return shape_; }
  std::size_t size() const { return size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  fmoe::place place() const { return on_->where(); }

  // Copies from and to the host, when the stream has done what was put on it before, and waits.
  void copy_from(const fmoe::tensor<T, Rank>& a, CUstream_st* after = nullptr) {
    for (std::size_t i = 0; i < Rank; ++i)
      detail::expects<shape_error>(a.shape()[i] == shape_[i], "[cuda] axis ", i, " is ",
                                   a.shape()[i], " in the copied array and ", shape_[i],
                                   " in the tensor");
    on_->copy_in(data_, a.data(), bytes(), after);
  }
  fmoe::tensor<T, Rank> to_host(CUstream_st* after = nullptr) const {
    fmoe::tensor<T, Rank> made(shape_);
    on_->copy_out(detail::elements_to_write(made), data_, bytes(), after);
    return made;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }

  std::array<std::size_t, Rank> shape_;
  std::size_t size_ = 0;
  std::shared_ptr<const processor> on_;
  T* data_ = nullptr;
};

// A view of elements in the memory of a GPU, const if they may only be read. Strides are in
// elements.
template <class T, std::size_t Rank>
class view {
 public:
  view(T* data, const std::array<std::size_t, Rank>& shape,
       const std::array<std::size_t, Rank>& strides, fmoe::place where)
      : data_(data),
        shape_(shape),
        strides_(strides),
        where_(where) {}

  T* data() const { return data_; }
  const std::array<std::size_t, Rank>& shape() const { return shape_; }
  const std::array<std::size_t, Rank>& strides() const { return strides_; }
  fmoe::place place() const { return where_; }

 private:
  T* data_;
  std::array<std::size_t, Rank> shape_, strides_;
  fmoe::place where_;
};

// Views of memory that the program has. Without a device CUDA is asked whose it is; value_error is
// thrown if it is no device's.
template <class T, std::size_t Rank>
view<T, Rank> at(T* data, const std::size_t (&shape)[Rank], const std::size_t (&strides)[Rank],
                 fmoe::place where) {
  return {data, std::to_array(shape), std::to_array(strides), where};
}
template <class T, std::size_t Rank>
view<T, Rank> at(T* data, const std::size_t (&shape)[Rank], const std::size_t (&strides)[Rank]) {
  return at(data, shape, strides, place_of(data));
}
template <class T, std::size_t Rank>
view<T, Rank> at(T* data, const std::size_t (&shape)[Rank], fmoe::place where) {
  std::size_t strides[Rank], stride = 1;
  for (std::size_t a = Rank; a-- > 0; stride *= shape[a]) strides[a] = stride;
  return at(data, shape, strides, where);
}
template <class T, std::size_t Rank>
view<T, Rank> at(T* data, const std::size_t (&shape)[Rank]) {
  return at(data, shape, place_of(data));
}

}  // namespace fmoe::cuda
