// SPDX-License-Identifier: MIT
// Rows of arrays of a call, of any strides and types, to and from dense rows of the arithmetic's
// type.
#pragma once

#include <fmoe/arrays/array_view.hpp>
#include <fmoe/backend/cuda/kernels/rows.hpp>

namespace fmoe::cuda {

// An array in the device's memory. Element n is the n-th in row-major order.
struct strided_array {
  static constexpr extent most = 2 * max_rank;

  void* data = nullptr;
  dtype type = dtype::float32;
  extent rank = 0;
  extent lengths[most] = {}, strides[most] = {};

  explicit strided_array(const array_view& v) : data(v.data), type(v.type), rank(v.rank) {
    for (extent a = 0; a < rank; ++a) {
      lengths[a] = v.shape[a];
      strides[a] = v.strides[a];
    }
  }

  FMOE_DEVICE extent place(extent n) const {
    extent at = 0;
    for (extent a = rank; a-- > 0;) {
      at += n % lengths[a] * strides[a];
      n /= lengths[a];
    }
    return at;
  }
};

// Reads number i of the array.
template <class T>
struct read_strided {
  strided_array from;
  rows_at<T> to;
  extent columns;

  FMOE_DEVICE void operator()(extent i) const {
    const extent at = from.place(i);
    to.row(i / columns)[i % columns] = with_type(from.type, [&](auto* type) {
      return convert<T>(static_cast<decltype(type)>(from.data)[at]);
    });
  }
};

// Writes number i of the array, which is of Ts.
template <class T>
struct write_strided {
  strided_array to;
  rows_at<const T> from;
  extent columns;

  FMOE_DEVICE void operator()(extent i) const {
    static_cast<T*>(to.data)[to.place(i)] = from.row(i / columns)[i % columns];
  }
};

}  // namespace fmoe::cuda
