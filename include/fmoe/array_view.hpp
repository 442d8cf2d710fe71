// SPDX-License-Identifier: MIT
// What a compiled layer is called with: any object with data() and shape(), and strides() in elements where it is not
// row-major (fmoe and xtensor tensors, and the like), seen as rows of tokens.
#pragma once

#include <array>
#include <concepts>
#include <type_traits>

#include <fmoe/base/dtype.hpp>

namespace fmoe {

// What a compiled layer takes.
template <class A>
concept array_like = requires(A& a) {
  a.data();
  a.shape();
  requires is_storable<std::remove_cvref_t<decltype(*a.data())>>;
};

struct array_view {
  void* data = nullptr;
  dtype type = dtype::float32;
  extent rank = 0;
  std::array<extent, 2 * max_rank> shape{}, strides{};  // leading batch axes included

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
  // Are the elements of a row neighbours, and the rows one stride apart?
  bool has_plain_rows(extent row_rank) const {
    constexpr extent unknown_stride = ~extent{0};
    extent expected = 1;
    for (extent i = rank; i-- > rank - row_rank;) {
      if (shape[i] > 1 && strides[i] != expected) return false;
      expected *= shape[i];
    }
    expected = unknown_stride;
    for (extent i = rank - row_rank; i-- > 0;) {
      if (shape[i] <= 1) continue;
      if (expected != unknown_stride && strides[i] != expected) return false;
      expected = strides[i] * shape[i];
    }
    return true;
  }
  extent row_stride(extent row_rank) const {
    for (extent i = rank - row_rank; i-- > 0;)
      if (shape[i] > 1) return strides[i];
    return 0;
  }
  // Bytes from the first to behind the last element, 0 if there is none.
  extent span_bytes() const {
    extent last = 0;
    for (extent i = 0; i < rank; ++i) {
      if (shape[i] == 0) return 0;
      last += (shape[i] - 1) * strides[i];
    }
    return (last + 1) * size_of(type);
  }
  bool overlaps(const array_view& other) const {
    const auto *a = static_cast<const std::byte*>(data), *b = static_cast<const std::byte*>(other.data);
    return span_bytes() != 0 && other.span_bytes() != 0 && a < b + other.span_bytes() && b < a + span_bytes();
  }
};

// Throws shape_error beyond 16 axes and value_error for a negative stride.
template <array_like A>
array_view view_of(A& a) {
  using T = std::remove_cvref_t<decltype(*a.data())>;
  array_view v;
  v.data = const_cast<T*>(a.data());
  v.type = dtype_of<T>;
  for (const auto e : a.shape()) {
    expects<shape_error>(v.rank < v.shape.size(), "[call] an array has more than ", v.shape.size(), " axes");
    v.shape[v.rank++] = static_cast<extent>(e);
  }
  if constexpr (requires { a.strides(); }) {
    extent i = 0;
    for (const auto s : a.strides()) {
      expects<value_error>(!(s < 0), "[call] axis ", i, " of an array has a negative stride");
      v.strides[i++] = static_cast<extent>(s);
    }
  } else {
    extent stride = 1;
    for (extent i = v.rank; i-- > 0; stride *= v.shape[i]) v.strides[i] = stride;
  }
  return v;
}

}  // namespace fmoe
