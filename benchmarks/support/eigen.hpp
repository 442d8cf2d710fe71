// SPDX-License-Identifier: MIT
// Views fmoe's tensors as Eigen's matrices.
#pragma once

#include <Eigen/Core>

#include <fmoe/tensor.hpp>

namespace fmoe::bench {

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using row_vector = Eigen::RowVectorXf;
using const_map = Eigen::Map<const matrix>;
using map = Eigen::Map<matrix>;

inline Eigen::Index index(extent n) { return static_cast<Eigen::Index>(n); }

// Views all of a tensor as a matrix with this number of columns.
template <std::size_t Rank>
const_map as_matrix(const tensor<float, Rank>& t, extent columns) {
  return {t.data(), index(t.size() / columns), index(columns)};
}
template <std::size_t Rank>
const_map as_matrix(const tensor<float, Rank>& t) {
  return as_matrix(t, t.shape()[Rank - 1]);
}
inline Eigen::Map<const row_vector> as_row(const tensor<float, 1>& t) {
  return {t.data(), index(t.size())};
}

// Views some rows of a tensor.
inline const_map rows_of(const tensor<float, 2>& t, extent first, extent count) {
  const extent width = t.shape()[1];
  return {t.data() + first * width, index(count), index(width)};
}
inline map rows_of(tensor<float, 2>& t, extent first, extent count) {
  const extent width = t.shape()[1];
  return {t.data() + first * width, index(count), index(width)};
}

}  // namespace fmoe::bench
