// SPDX-License-Identifier: MIT
// Rows of length 1: the authors of MxD can keep those of the decoder so (`norm_dec` in their
// training code), which are c_n of an MxD and d_h of a transcoder.
#pragma once

#include <cmath>

#include <fmoe/arrays/tensor.hpp>

namespace fmoe::detail {

// Returns the sum of a[i] b[i] in double.
template <class T>
double dot_product(const T* a, const T* b, extent n) {
  double sum = 0;
  for (extent i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

}  // namespace fmoe::detail

namespace fmoe {

// Scales each row of a matrix [n, o] to length 1, before the forward pass of a step. A row of zeros
// stays as it is: the authors' code would make it NaN.
//
//   mxd<> model = layer;
//   unit_rows(model.scales);  // c_n of an MxD; of a sparse_mlp it is the decoder
template <class T>
void unit_rows(tensor<T, 2>& w) {
  const std::size_t width = w.empty() ? 0 : w.shape()[1];
  T* const first = detail::elements_to_write(w);
  for (std::size_t n = 0; n * width < w.size(); ++n) {
    T* const row = first + n * width;
    const double length = std::sqrt(detail::dot_product(row, row, width));
    if (length == 0) continue;
    for (std::size_t o = 0; o < width; ++o)
      row[o] = static_cast<T>(static_cast<double>(row[o]) / length);
  }
}

// Takes from each row of a gradient [n, o] its part along the row of the weights, g - (g w) w, so
// that a step hardly changes the length 1 of the rows of w. Throws shape_error for two shapes.
//
//   mxd<> model = layer;
//   auto step = compile_gradients(model, 1024);
//   remove_parallel(step.gradients().scales, model.scales);
template <class T>
void remove_parallel(tensor<T, 2>& gradient, const tensor<T, 2>& w) {
  detail::expects<shape_error>(gradient.shape() == w.shape(),
                               "[remove_parallel] the gradient and the weights have two shapes");
  const std::size_t width = w.empty() ? 0 : w.shape()[1];
  T* const first = detail::elements_to_write(gradient);
  for (std::size_t n = 0; n * width < w.size(); ++n) {
    T* const g = first + n * width;
    const T* const row = w.data() + n * width;
    const double along = detail::dot_product(g, row, width);
    for (std::size_t o = 0; o < width; ++o)
      g[o] = static_cast<T>(static_cast<double>(g[o]) - along * static_cast<double>(row[o]));
  }
}

}  // namespace fmoe
