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

#include <fmoe/arrays/quantized_layout.hpp>
#include <fmoe/arrays/storage.hpp>
#include <fmoe/base/dtype.hpp>

namespace fmoe::detail {

// A shape and shared elements: what all tensors have, whatever they store. An assignment of the
// same shape is a write to the elements that it had. One of another shape, or of nothing, leaves
// those to the expressions and the compiled layers that were made of them.
template <extent Rank>
class shaped_storage {
 public:
  static_assert(Rank <= max_rank, "fmoe::tensor has at most 8 axes");
  static constexpr extent rank = Rank;

  const std::array<extent, Rank>& shape() const { return shape_; }
  extent size() const { return size_; }

  // True for a default-constructed tensor, which holds nothing, not even zero elements.
  bool empty() const { return storage_ == nullptr; }

  const std::shared_ptr<fmoe::storage>& shared_storage() const { return storage_; }

  // Takes the storage of another tensor in place of its own, which nothing was made of.
  void refer_to(const shaped_storage& o) {
    storage_ = nullptr;
    *this = shaped_storage(o.shape_, o.size_, o.storage_, o.axis_);
  }

 protected:
  shaped_storage() = default;
  shaped_storage(const std::array<extent, Rank>& shape, extent size,
                 std::shared_ptr<fmoe::storage> s, block_axis axis = {})
      : shape_(shape),
        size_(size),
        storage_(std::move(s)),
        axis_(axis) {}
  shaped_storage(shaped_storage&&) = default;
  shaped_storage(const shaped_storage& o)
      : shape_(o.shape_),
        size_(o.size_),
        storage_(o.empty() ? nullptr : std::make_shared<fmoe::storage>(*o.storage_)),
        axis_(o.axis_) {}
  shaped_storage& operator=(const shaped_storage& o) {
    if (!is_rewritten_by(o)) return *this = shaped_storage(o);
    if (storage_ != o.storage_) *storage_ = *o.storage_;
    return *this;
  }
  shaped_storage& operator=(shaped_storage&& o) noexcept {
    if (this == &o) return *this;
    if (!is_rewritten_by(o)) {
      if (storage_.use_count() > 1) storage_->set_replaced();
      shape_ = o.shape_;
      size_ = o.size_;
      storage_ = std::move(o.storage_);
      axis_ = o.axis_;
    } else if (storage_ != o.storage_) {
      *storage_ = std::move(*o.storage_);
      o.storage_ = nullptr;
    }
    return *this;
  }
  FMOE_NOINLINE ~shaped_storage() {}  // layers have dozens of tensors

  block_axis axis() const { return axis_; }

 private:
  // True if an assignment of o leaves what refers to this tensor valid.
  bool is_rewritten_by(const shaped_storage& o) const {
    return !empty() && !o.empty() && shape_ == o.shape_ && axis_ == o.axis_;
  }

  std::array<extent, Rank> shape_{};
  extent size_ = 0;
  std::shared_ptr<fmoe::storage> storage_;
  block_axis axis_;  // of weights of 8 bits
};

}  // namespace fmoe::detail

namespace fmoe {

// A copy is a value of its own. Its elements are copied when it or the original is first written,
// or at once if data(), begin() or operator() of the original, not const, has given out a way to
// write them. Several threads may write at once after one of them has written or called data(). An
// assignment of the same shape is a write to all elements. What was made of a tensor before one of
// another shape was assigned goes on with the elements of before, unless a part of it was written
// since: then it refuses, and so does refresh().
//
// evaluate reads the elements as they are at the call, however they were written. A compiled layer
// keeps the weights that it was compiled with until refresh(), which reads all that anybody may
// have written; it refuses to run after a write that it knows of: those by data(), begin(),
// operator() and assignments, and those that written() tells.
//
//   tensor<float, 2> a({2, 3}, {1, 2, 3, 4, 5, 6});
//   a(1, 2) = 7;
//   for (float& v : a) v *= 2;
//   std::cout << a << a.shape()[0];
template <class T, std::size_t Rank>
class tensor : public detail::shaped_storage<Rank> {
  using base = detail::shaped_storage<Rank>;
  static_assert(
      detail::is_storable<T>,
      "fmoe::tensor stores float, double, fmoe::bf16 or fmoe::f16, and weights as fmoe::q8 "
      "or fmoe::q8c with <fmoe/quantize.hpp>");

 public:
  using value_type = T;
  using base::empty, base::rank, base::shape, base::shared_storage, base::size;

  tensor() = default;

  // Makes zeros. Throws shape_error if the number of bytes overflows.
  explicit tensor(const std::array<std::size_t, Rank>& extents)
      : tensor(extents, std::make_shared<fmoe::storage>(detail::element_count(extents, sizeof(T)) *
                                                        sizeof(T))) {}

  // Copies the elements of `values` in row-major order. Throws shape_error unless their number is
  // that of the shape.
  tensor(const std::array<std::size_t, Rank>& extents, std::span<const T> values)
      : tensor(extents) {
    detail::expects<shape_error>(values.size() == size(), "[tensor] the shape has ", size(),
                                 " elements and there are ", values.size(), " values");
    std::ranges::copy(values, static_cast<T*>(shared_storage()->data()));
  }

  // These take a shape in braces; a std::array would not tell its length: {4} would be [4, 0]. The
  // extents may be signed, as those of other libraries are; throws shape_error for negative ones.
  template <std::size_t N>
  explicit tensor(const std::size_t (&extents)[N]) : tensor(shape_in_braces(extents)) {}
  template <std::size_t N>
  tensor(const std::size_t (&extents)[N], std::span<const T> values)
      : tensor(shape_in_braces(extents), values) {}
  template <std::size_t N>
  tensor(const std::size_t (&extents)[N], std::initializer_list<T> values)
      : tensor(shape_in_braces(extents), std::span(values.begin(), values.size())) {}
  template <std::signed_integral I, std::size_t N>
  explicit tensor(const I (&extents)[N]) : tensor(shape_in_braces(extents)) {}
  template <std::signed_integral I, std::size_t N>
  tensor(const I (&extents)[N], std::span<const T> values)
      : tensor(shape_in_braces(extents), values) {}
  template <std::signed_integral I, std::size_t N>
  tensor(const I (&extents)[N], std::initializer_list<T> values)
      : tensor(shape_in_braces(extents), std::span(values.begin(), values.size())) {}

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
    constexpr bool is_argument = requires { E::index; };  // of a layer that compile calls
    static_assert(
        !is_argument,
        "compile calls a layer with an expression: its parameter is const auto& x, and no "
        "tensor");
    static_assert(is_argument,
                  "fmoe::tensor: an expression has no elements; fmoe::evaluate(expression) has");
  }

  // Makes a handle on existing storage, which must hold `size` elements of T.
  tensor(const std::array<std::size_t, Rank>& extents, std::shared_ptr<fmoe::storage> s)
      : base(extents, detail::element_count(extents, sizeof(T)), std::move(s)) {}

  // The elements. To ask for those of a tensor that is not const makes a new version of them,
  // whether they are written or not.
  T* data() { return lent(); }
  const T* data() const { return elements(); }

  // The elements in row-major order, as a range: for loops, algorithms and std::span take a tensor.
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }

  // The element at an index for each axis. Where NDEBUG is not defined, throws value_error for an
  // index that the axis does not have.
  template <class... Index>
  T& operator()(Index... i) {
    return lent()[offset(i...)];
  }
  template <class... Index>
  const T& operator()(Index... i) const {
    return elements()[offset(i...)];
  }

  // Says that the elements were written by a pointer, a span or a reference, or in the memory that
  // the tensor borrows: layers that were compiled before refuse to run until they are refreshed.
  void written() const {
    if (!empty()) shared_storage()->was_written();
  }

 private:
  const T* elements() const {
    return empty() ? nullptr : static_cast<const T*>(shared_storage()->data());
  }
  T* lent() const { return empty() ? nullptr : static_cast<T*>(shared_storage()->lent()); }

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
    detail::expects<value_error>(i < shape()[axis], "[tensor] the index ", i, " of axis ", axis,
                                 " is not below its length, ", shape()[axis]);
#endif
    return outer * shape()[axis] + i;
  }
};

// A tensor that belongs to a layer. Plans multiply two parameters only where nothing else is left,
// so no expert is ever materialised.
template <class T, std::size_t Rank>
struct parameter : tensor<T, Rank> {
  using tensor<T, Rank>::tensor;
  parameter() = default;
  parameter(tensor<T, Rank> t) : tensor<T, Rank>(std::move(t)) {}
};

// A vector, such as a bias, stays in floats where a layer has weights of 8 bits.
template <class Q>
  requires detail::is_quantized<Q>
struct parameter<Q, 1> : parameter<float, 1> {
  using parameter<float, 1>::parameter;
};

}  // namespace fmoe

namespace fmoe::detail {

// The elements of a tensor to write, for code that lets the pointer go before it returns.
template <class T, std::size_t Rank>
T* elements_to_write(tensor<T, Rank>& t) {
  return t.empty() ? nullptr : static_cast<T*>(t.shared_storage()->written());
}

// True if the elements of an argument of type A&& do not end with it.
template <class A>
inline constexpr bool outlives = std::is_lvalue_reference_v<A> || std::ranges::borrowed_range<A>;

// An extent of a shape in braces, whose numbers may have any integer types.
class extent_in_braces {
 public:
  template <std::integral I>
  extent_in_braces(I number)
      : extent_(static_cast<std::size_t>(number)),
        is_negative_(number < I{}) {}

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

// A tensor on the elements of a span; of floats after borrow has refused what no tensor stores.
template <class Span, std::size_t Rank, class T = typename Span::value_type>
using borrowed_elements = tensor<std::conditional_t<is_storable<T>, T, float>, Rank>;
template <class Span, std::size_t Rank>
using borrowed =
    std::conditional_t<std::is_const_v<typename Span::element_type>,
                       const borrowed_elements<Span, Rank>, borrowed_elements<Span, Rank>>;

}  // namespace fmoe::detail

namespace fmoe {

// Returns a tensor on the elements of a container or span, which must outlive it; the tensor is
// const if the elements are. Nothing is copied, so that what is written to the container counts as
// what is written by a pointer. A temporary is refused unless, as a span, it owns
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
  using view = decltype(std::span(elements));
  using result = detail::borrowed_elements<view, Rank>;
  constexpr bool is_stored = detail::is_storable<typename view::value_type>;
  static_assert(
      is_stored,
      "borrow: an array is of float, double, fmoe::bf16 or fmoe::f16: cast integers first");
  static_assert(detail::outlives<Range>,
                "borrow: the elements belong to a temporary, which ends before the tensor: name "
                "it, or copy it by tensor<float, 2>(shape, values)");
  if constexpr (is_stored && detail::outlives<Range>) {
    const view span(elements);
    detail::expects<shape_error>(detail::element_count(shape) <= span.size(),
                                 "[borrow] the shape has ", detail::element_count(shape),
                                 " elements and the container ", span.size());
    return result(shape, std::make_shared<storage>(span.data(), span.size_bytes()));
  }
  return result();
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
