// SPDX-License-Identifier: MIT
// A view of the elements of an array of any library, as rows of tokens: a compiled layer is called
// with such views and reads and writes the elements in place, be it the host's or a device's.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <fmoe/arrays/place.hpp>
#include <fmoe/base/dtype.hpp>

namespace fmoe::detail {

struct array_view {
  void* data = nullptr;
  dtype type = dtype::float32;
  extent rank = 0;
  std::array<extent, 2 * max_rank> shape{}, strides{};  // leading batch axes included
  place where{};
  void* made_by =
      nullptr;  // the device's stream whose work makes the elements; null: they are made

  // Leading axes beyond `row_rank` count tokens.
  extent tokens(extent row_rank) const {
    extent n = 1;
    for (extent i = 0; i + row_rank < rank; ++i) n *= shape[i];
    return n;
  }
  extent row_size(extent row_rank) const {
    extent n = 1;
    for (extent i = rank - row_rank; i < rank; ++i) n *= shape[i];
    return n;
  }
  extent row_offset(extent row_rank, extent token) const {
    extent at = 0;
    for (extent i = rank - row_rank; i-- > 0;) {
      at += token % shape[i] * strides[i];
      token /= shape[i];
    }
    return at;
  }
  // True if the elements of each row are adjacent and all rows are one stride apart.
  bool has_plain_rows(extent row_rank) const {
    extent expected = 1;
    for (extent i = rank; i-- > rank - row_rank;) {
      if (shape[i] > 1 && strides[i] != expected) return false;
      expected *= shape[i];
    }
    expected = all;  // of any distance
    for (extent i = rank - row_rank; i-- > 0;) {
      if (shape[i] <= 1) continue;
      if (expected != all && strides[i] != expected) return false;
      expected = strides[i] * shape[i];
    }
    return true;
  }
  extent row_stride(extent row_rank) const {
    for (extent i = rank - row_rank; i-- > 0;)
      if (shape[i] > 1) return strides[i];
    return 0;
  }
  // True if several elements have the same address. Different strides other than 0 are assumed to
  // be those of different elements.
  bool repeats() const {
    if (span_bytes() == 0) return false;
    for (extent i = 0; i < rank; ++i)
      if (shape[i] > 1 && strides[i] == 0) return true;
    return false;
  }
  // Returns the bytes from the first element to the end of the last one, 0 if there is no element.
  extent span_bytes() const {
    extent last = 0;
    for (extent i = 0; i < rank; ++i) {
      if (shape[i] == 0) return 0;
      last += (shape[i] - 1) * strides[i];
    }
    return (last + 1) * size_of(type);
  }
};

// An array that a call binds; its last `row_rank` axes are the row of a token.
struct bound_array {
  array_view array;
  extent row_rank = 0;

  extent row_size() const { return array.row_size(row_rank); }
  bool has_plain_rows() const { return array.has_plain_rows(row_rank); }
  extent row_stride() const { return array.row_stride(row_rank); }
};

}  // namespace fmoe::detail

namespace fmoe {

// Stands for the element type of arrays whose type is known when the program runs.
struct any_number {};

// An array_view that knows the type of its elements, const if they may only be read, and its rank
// unless that is `all`.
template <class T, std::size_t Rank>
struct typed_view : detail::array_view {
  using element = T;  // any_number if only `type` tells it
  static constexpr std::size_t fixed_rank = Rank;
};

// Returns the view of an array; without strides it is row-major. Throws shape_error beyond 16 axes
// and value_error for a negative stride.
template <std::size_t Rank, class T, class Shape, class Strides = std::nullptr_t>
typed_view<T, Rank> view_at(T* data, const Shape& shape, const Strides& strides = {}) {
  typed_view<T, Rank> v;
  v.data = const_cast<std::remove_const_t<T>*>(data);
  if constexpr (detail::is_storable<std::remove_const_t<T>>)
    v.type = detail::dtype_of<std::remove_const_t<T>>;
  for (const auto e : shape) {
    detail::expects<shape_error>(v.rank < v.shape.size(), "[call] an array has more than ",
                                 v.shape.size(), " axes");
    v.shape[v.rank++] = static_cast<std::size_t>(e);
  }
  if constexpr (std::is_null_pointer_v<Strides>) {
    std::size_t stride = 1;
    for (std::size_t i = v.rank; i-- > 0; stride *= v.shape[i]) v.strides[i] = stride;
  } else {
    std::size_t i = 0;
    for (const auto s : strides) {
      detail::expects<value_error>(!(s < 0), "[call] axis ", i,
                                   " of an array has a negative stride");
      v.strides[i++] = static_cast<std::size_t>(s);
    }
  }
  return v;
}

}  // namespace fmoe

namespace fmoe::detail {

template <class A>
concept has_shape = requires(A& a) {
  *a.data();
  a.shape();
};
template <class A>
concept mdspan_like = requires(A& a) {
  *a.data_handle();
  a.extent(0), a.stride(0), a.rank();
};

// The number of entries of a shape's type, `all` if the type does not fix it.
template <class Shape>
inline constexpr extent fixed_size = all;
template <class Shape>
  requires requires { std::tuple_size<Shape>::value; }
inline constexpr extent fixed_size<Shape> = std::tuple_size<Shape>::value;

}  // namespace fmoe::detail

namespace fmoe {

// Tells how fmoe sees the arrays of another library. Specialise it with one function: static
// typed_view<T, Rank> view(A&) for arrays in memory, or static auto evaluated(const A&), which
// returns an array, for objects that are not in memory yet. A is const if the array is.
template <class A>
struct array_traits {
  // For arrays with data(), shape() and, unless they are row-major, strides() in elements: tensors
  // of fmoe and xtensor, and the like. Those of a device have place().
  static auto view(A& a)
    requires detail::has_shape<A>
  {
    if constexpr (requires { a.place(); }) {
      auto v = host_view(a);
      v.where = a.place();
      return v;
    } else {
      return host_view(a);
    }
  }
  // For std::mdspan and its predecessors; a layout without strides throws as it does there.
  static auto view(A& a)
    requires detail::mdspan_like<A>
  {
    std::array<std::ptrdiff_t, A::rank()> shape{}, strides{};
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const auto axis = static_cast<typename A::rank_type>(i);
      shape[i] = static_cast<std::ptrdiff_t>(a.extent(axis));
      strides[i] = static_cast<std::ptrdiff_t>(a.stride(axis));
    }
    return view_at<A::rank()>(a.data_handle(), shape, strides);
  }
  static auto view(A& a)
    requires std::is_array_v<A>
  {
    constexpr std::size_t rank = std::rank_v<A>;
    const auto shape = []<std::size_t... I>(std::index_sequence<I...>) {
      return std::array<std::size_t, rank>{std::extent_v<A, I>...};
    }(std::make_index_sequence<rank>());
    return view_at<rank>(reinterpret_cast<std::remove_all_extents_t<A>*>(&a), shape);
  }
  // For std::span, std::vector and std::array, which have one axis.
  static auto view(A& a)
    requires(!detail::has_shape<A> && !std::is_array_v<A> && std::ranges::contiguous_range<A> &&
             std::ranges::sized_range<A>)
  {
    return view_at<1>(std::ranges::data(a), std::array{std::ranges::size(a)});
  }

 private:
  // A view of a tensor of fmoe's ends with the call that it was made for.
  static auto elements_of(A& a) {
    if constexpr (requires { elements_to_write(a); }) return elements_to_write(a);
    else return a.data();
  }
  static auto host_view(A& a) {
    constexpr std::size_t rank = detail::fixed_size<std::remove_cvref_t<decltype(a.shape())>>;
    auto* first = elements_of(a);
    if constexpr (requires { a.data_offset(); }) first += a.data_offset();  // views of xtensor
    if constexpr (requires { a.strides(); }) return view_at<rank>(first, a.shape(), a.strides());
    else return view_at<rank>(first, a.shape());
  }
};

}  // namespace fmoe

namespace fmoe::detail {

template <class A>
concept array_like = requires(A& a) { array_traits<A>::view(a); };

template <class A>
concept lazy_array = !array_like<A> && requires(const A& a) { array_traits<A>::evaluated(a); };

template <class A>
  requires array_like<std::remove_reference_t<A>>
auto view_of(A&& a) {
  return array_traits<std::remove_reference_t<A>>::view(a);
}

// Returns the view of an array that code of the host reads. Throws value_error for a device's.
template <class A>
auto host_view_of(A&& a) {
  auto v = view_of(std::forward<A>(a));
  expects<value_error>(v.where.is_host(), "[array] this array lies on ", std::string(v.where),
                       ", and only a call that runs there reads it: copy it to the host first");
  return v;
}

// Returns a itself, or its value if it is lazy.
template <class A>
  requires array_like<A> || lazy_array<A>
decltype(auto) in_memory(A& a) {
  if constexpr (array_like<A>) return (a);
  else return array_traits<A>::evaluated(a);
}

}  // namespace fmoe::detail
