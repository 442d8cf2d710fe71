// SPDX-License-Identifier: MIT
// Dense row-major tensors on 64-byte aligned memory.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <fmoe/arrays/storage.hpp>
#include <fmoe/base/dtype.hpp>

namespace fmoe {

// A copy is a value of its own, but the elements are copied only when it or the original is first
// written, through data(), begin() or operator(): a pointer that was taken before a copy was made
// writes to both. Several threads may write at once after one of them has written or called data().
// An assignment of the same shape is a write to all elements. evaluate reads the elements anew in
// every call. A compiled layer keeps the weights that it was compiled with: after a write it
// refuses to run until it is refreshed.
//
//   tensor<float, 2> a({2, 3}, {1, 2, 3, 4, 5, 6});
//   a(1, 2) = 7;
//   for (float& v : a) v *= 2;
//   std::cout << a << a.shape()[0];
template <class T, std::size_t Rank>
class tensor {
  static_assert(detail::is_storable<T>,
                "fmoe::tensor stores float, double, fmoe::bf16 or fmoe::f16");
  static_assert(Rank <= detail::max_rank, "fmoe::tensor has at most 8 axes");

 public:
  using value_type = T;
  static constexpr std::size_t rank = Rank;

  tensor() = default;
  tensor(tensor&&) = default;
  tensor(const tensor& o)
      : shape_(o.shape_),
        size_(o.size_),
        storage_(o.empty() ? nullptr : std::make_shared<fmoe::storage>(*o.storage_)) {}
  tensor& operator=(const tensor& o) {
    if (!is_rewritten_by(o)) return *this = tensor(o);
    if (storage_ != o.storage_) *storage_ = *o.storage_;
    return *this;
  }
  tensor& operator=(tensor&& o) noexcept {
    if (this == &o) return *this;
    if (!is_rewritten_by(o)) {
      shape_ = o.shape_;
      size_ = o.size_;
      storage_ = std::move(o.storage_);
    } else if (storage_ != o.storage_) {
      *storage_ = std::move(*o.storage_);
      o.storage_ = nullptr;
    }
    return *this;
  }
  ~tensor() = default;

  // Makes zeros. Throws shape_error if the number of bytes overflows.
  explicit tensor(const std::array<std::size_t, Rank>& shape)
      : shape_(shape),
        size_(detail::element_count(shape, sizeof(T))),
        storage_(std::make_shared<fmoe::storage>(size_ * sizeof(T))) {}

  // Copies the elements of `values` in row-major order. Throws shape_error unless their number is
  // that of the shape.
  tensor(const std::array<std::size_t, Rank>& shape, std::span<const T> values) : tensor(shape) {
    detail::expects<shape_error>(values.size() == size_, "[tensor] the shape has ", size_,
                                 " elements and there are ", values.size(), " values");
    std::ranges::copy(values, data());
  }

  // These take a shape in braces; a std::array would not tell its length: {4} would be [4, 0]. The
  // extents may be signed, as those of other libraries are; throws shape_error for negative ones.
  template <std::size_t N>
  explicit tensor(const std::size_t (&shape)[N]) : tensor(shape_in_braces(shape)) {}
  template <std::size_t N>
  tensor(const std::size_t (&shape)[N], std::span<const T> values)
      : tensor(shape_in_braces(shape), values) {}
  template <std::size_t N>
  tensor(const std::size_t (&shape)[N], std::initializer_list<T> values)
      : tensor(shape_in_braces(shape), std::span(values.begin(), values.size())) {}
  template <std::signed_integral I, std::size_t N>
  explicit tensor(const I (&shape)[N]) : tensor(shape_in_braces(shape)) {}
  template <std::signed_integral I, std::size_t N>
  tensor(const I (&shape)[N], std::span<const T> values) : tensor(shape_in_braces(shape), values) {}
  template <std::signed_integral I, std::size_t N>
  tensor(const I (&shape)[N], std::initializer_list<T> values)
      : tensor(shape_in_braces(shape), std::span(values.begin(), values.size())) {}

  // These refuse wrong arguments with a sentence instead of a list of constructors.
  template <std::integral... N>
    requires(sizeof...(N) > 0)
  explicit tensor(N...) {
    static_assert(detail::never<N...>,
                  "fmoe::tensor: the shape is in braces, as in fmoe::tensor<float, 2>({4, 8})");
  }
  // Two rows of whole numbers have the types of a shape and values, so these are not refused.
  template <class A, class B, class... More>
    requires(sizeof...(More) > 0 || std::floating_point<A>)
  tensor(std::initializer_list<A>, std::initializer_list<B>, std::initializer_list<More>...) {
    static_assert(detail::never<A>,
                  "fmoe::tensor: rows have no braces of their own, as in fmoe::tensor<float, "
                  "2>({2, 2}, {1, 2, 3, 4})");
  }
  template <std::size_t N, class Values>
    requires requires(const Values& v) { v.begin(), v.size(); } &&
             (!std::convertible_to<const Values&, std::span<const T>>)
  tensor(const std::size_t (&)[N], const Values&) {
    static_assert(detail::never<Values>,
                  "fmoe::tensor: the values are a span, array or vector of the tensor's own type");
  }
  template <class U, std::size_t OtherRank>
    requires(!std::is_same_v<tensor<U, OtherRank>, tensor>)
  tensor(const tensor<U, OtherRank>&) {
    static_assert(OtherRank == Rank, "fmoe::tensor: the other tensor has another number of axes");
    static_assert(std::is_same_v<U, T>,
                  "fmoe::tensor: the other tensor stores another type, and nothing is converted");
  }
  template <class E>
    requires requires {
      typename E::scalar;
      E::rank;
    }
  tensor(const E&) {
    static_assert(detail::never<E>,
                  "fmoe::tensor: an expression has no elements; fmoe::evaluate(expression) has");
  }

  // Makes a handle on existing storage, which must hold `size` elements of T.
  tensor(const std::array<std::size_t, Rank>& shape, std::shared_ptr<fmoe::storage> s)
      : shape_(shape),
        size_(detail::element_count(shape, sizeof(T))),
        storage_(std::move(s)) {}

  const std::array<std::size_t, Rank>& shape() const { return shape_; }
  std::size_t size() const { return size_; }

  // True for a default-constructed tensor, which holds nothing, not even zero elements.
  bool empty() const { return storage_ == nullptr; }

  // The elements. To ask for those of a tensor that is not const makes a new version of them,
  // whether they are written or not.
  T* data() { return written(); }
  const T* data() const { return elements(); }

  // The elements in row-major order, as a range: for loops, algorithms and std::span take a tensor.
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

  // The element at an index for each axis. Where NDEBUG is not defined, throws value_error for an
  // index that the axis does not have.
  template <class... Index>
  T& operator()(Index... i) {
    return written()[offset(i...)];
  }
  template <class... Index>
  const T& operator()(Index... i) const {
    return elements()[offset(i...)];
  }

  const std::shared_ptr<fmoe::storage>& shared_storage() const { return storage_; }

 private:
  const T* elements() const { return storage_ ? static_cast<const T*>(storage_->data()) : nullptr; }
  T* written() const { return storage_ ? static_cast<T*>(storage_->written()) : nullptr; }

  // True if an assignment of o leaves what refers to this tensor valid.
  bool is_rewritten_by(const tensor& o) const {
    return !empty() && !o.empty() && shape_ == o.shape_;
  }

  template <class I, std::size_t N>
  static std::array<std::size_t, Rank> shape_in_braces(const I (&shape)[N]) {
    static_assert(N == Rank, "fmoe::tensor: the shape has one extent for each axis");
    std::array<std::size_t, Rank> s{};
    for (std::size_t i = 0; i < std::min(N, Rank); ++i) {
      detail::expects<shape_error>(!(shape[i] < I{}), "[tensor] the extent ", shape[i], " of axis ",
                                   i, " is negative");
      s[i] = static_cast<std::size_t>(shape[i]);
    }
    return s;
  }

  template <class... Index>
  std::size_t offset(Index... i) const {
    static_assert(sizeof...(Index) == Rank, "fmoe::tensor: an element has one index for each axis");
    std::size_t at = 0;
    [[maybe_unused]] std::size_t axis = 0;  // unused by a scalar
    ((at = offset_along(axis++, static_cast<std::size_t>(i), at)), ...);
    return at;
  }

  // Returns the offset of element i of an axis, where `outer` counts the elements of the axes
  // before.
  std::size_t offset_along(std::size_t axis, std::size_t i, std::size_t outer) const {
#ifndef NDEBUG
    detail::expects<value_error>(i < shape_[axis], "[tensor] the index ", i, " of axis ", axis,
                                 " is not below its length, ", shape_[axis]);
#endif
    return outer * shape_[axis] + i;
  }

  std::array<std::size_t, Rank> shape_{};
  std::size_t size_ = 0;
  std::shared_ptr<fmoe::storage> storage_;
};

// A tensor that belongs to a layer. Plans multiply two parameters only where nothing else is left,
// so no expert is ever materialised.
template <class T, std::size_t Rank>
struct parameter : tensor<T, Rank> {
  using tensor<T, Rank>::tensor;
  parameter() = default;
  parameter(tensor<T, Rank> t) : tensor<T, Rank>(std::move(t)) {}
};

}  // namespace fmoe

namespace fmoe::detail {

// True if the elements of an argument of type A&& do not end with it.
template <class A>
inline constexpr bool outlives = std::is_lvalue_reference_v<A> || std::ranges::borrowed_range<A>;

// An extent of a shape in braces, whose numbers may have any integer types.
class extent_in_braces {
 public:
  template <std::integral I>
  extent_in_braces(I extent)
      : extent_(static_cast<std::size_t>(extent)),
        is_negative_(extent < I{}) {}

  // Throws shape_error if it is negative.
  std::size_t of_axis(std::size_t axis) const {
    expects<shape_error>(!is_negative_, "[tensor] the extent ",
                         static_cast<std::ptrdiff_t>(extent_), " of axis ", axis, " is negative");
    return extent_;
  }

 private:
  std::size_t extent_;
  bool is_negative_;
};

template <class Span, std::size_t Rank>
using borrowed = std::conditional_t<std::is_const_v<typename Span::element_type>,
                                    const tensor<typename Span::value_type, Rank>,
                                    tensor<typename Span::value_type, Rank>>;

}  // namespace fmoe::detail

namespace fmoe {

// Returns a tensor on the elements of a container or span, which must outlive it; the tensor is
// const if the elements are. Nothing is copied. A temporary is refused unless, as a span, it owns
// nothing. Throws shape_error if there are fewer elements than the shape has, or for a negative
// extent.
//
//   std::vector<float> numbers(6);
//   const auto rows = borrow(numbers, {2, 3});
//   const auto first = borrow(std::span(numbers.data(), 4), std::array<std::size_t, 2>{2, 2});
template <class Range, std::size_t Rank>
  requires requires(Range& r) { std::span(r); }
auto borrow(Range&& elements, const std::array<std::size_t, Rank>& shape)
    -> detail::borrowed<decltype(std::span(elements)), Rank> {
  using T = typename decltype(std::span(elements))::value_type;
  static_assert(detail::outlives<Range>,
                "borrow: the elements belong to a temporary, which ends before the tensor: name "
                "it, or copy it by tensor<float, 2>(shape, values)");
  if constexpr (detail::outlives<Range>) {
    const std::span span(elements);
    detail::expects<shape_error>(detail::element_count(shape) <= span.size(),
                                 "[borrow] the shape has ", detail::element_count(shape),
                                 " elements and the container ", span.size());
    return tensor<T, Rank>(shape, std::make_shared<storage>(span.data(), span.size_bytes()));
  }
  return tensor<T, Rank>();
}
template <class Range, std::size_t Rank>
  requires requires(Range& r) { std::span(r); }
auto borrow(Range&& elements, const detail::extent_in_braces (&shape)[Rank])
    -> detail::borrowed<decltype(std::span(elements)), Rank> {
  std::array<std::size_t, Rank> s{};
  for (std::size_t i = 0; i < Rank; ++i) s[i] = shape[i].of_axis(i);
  return borrow(std::forward<Range>(elements), s);
}

}  // namespace fmoe
