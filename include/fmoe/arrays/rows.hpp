// SPDX-License-Identifier: MIT
// Rows of bound arrays of any strides and types, element by element.
#pragma once

#include <fmoe/arrays/array_view.hpp>

namespace fmoe::detail {

// Calls f(offset) for the elements of one row in row-major order.
template <class F>
void each_element(const bound_array& x, extent token, F f) noexcept {
  const array_view& v = x.array;
  const extent first = v.row_offset(x.row_rank, token), n = x.row_size();
  for (extent i = 0; i < n; ++i) {
    extent at = first, rest = i;
    for (extent a = v.rank; a-- > v.rank - x.row_rank;) {
      at += rest % v.shape[a] * v.strides[a];
      rest /= v.shape[a];
    }
    f(at);
  }
}

// Copies one row to neighbouring elements of T.
template <class T>
void read_row(const bound_array& x, extent token, T* to) noexcept {
  with_type(x.array.type, [&](auto* type) {
    const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(x.array.data);
    each_element(x, token, [&](extent at) { *to++ = convert<T>(from[at]); });
  });
}

// Copies neighbouring elements of T to one row.
template <class T>
void write_row(const T* from, const bound_array& y, extent token) noexcept {
  with_type(y.array.type, [&](auto* type) {
    using stored = std::remove_pointer_t<decltype(type)>;
    auto* to = static_cast<stored*>(y.array.data);
    each_element(y, token, [&](extent at) { to[at] = convert<stored>(*from++); });
  });
}

}  // namespace fmoe::detail
