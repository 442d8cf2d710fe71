// SPDX-License-Identifier: MIT
// The rank of an expert's matrix, from Eigen's singular values. The ranks of the factors bound
// those of muMoE's experts (Oldfield et al. 2024, D.1); MxD's experts have the rank of the decoder
// (Oldfield et al. 2025, Lemma 1).
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include <Eigen/SVD>

#include <fmoe/arrays/eigen.hpp>

namespace fmoe {

// The distance from 1 to the next number of a type.
template <class T>
inline constexpr double epsilon_of = std::numeric_limits<T>::epsilon();
template <>
inline constexpr double epsilon_of<bf16> = 0x1p-7;
template <>
inline constexpr double epsilon_of<f16> = 0x1p-10;

template <class A>
auto to_matrix(const A& a) {
  constexpr bool readable = readable_array<const A>;
  static_assert(
      readable,
      "a rank needs an array [row, column] of floating-point numbers; for an expression pass "
      "evaluate(expression)");
  if constexpr (readable) return to_tensor<2>(a);
  else return tensor<float, 2>();
}

// Returns the min(rows, columns) singular values, descending, computed in double. The matrix is any
// array of two axes. Throws shape_error for another number of axes and value_error for an entry
// that is not finite.
template <class A>
std::vector<double> singular_values(const A& matrix) {
  const auto elements = to_matrix(matrix);
  const auto [rows, columns] = elements.shape();
  if (elements.size() == 0) return {};
  Eigen::MatrixXd m(static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(columns));
  for (extent i = 0; i < elements.size(); ++i)
    m(static_cast<Eigen::Index>(i / columns), static_cast<Eigen::Index>(i % columns)) =
        convert<double>(elements.data()[i]);
  expects<value_error>(m.allFinite(), "[singular_values] an entry of the matrix is not finite");
  const Eigen::VectorXd values = Eigen::BDCSVD<Eigen::MatrixXd>(m).singularValues();
  return {values.begin(), values.end()};
}

// Returns how many singular values are greater than `tolerance`. By default this is max(rows,
// columns) times the greatest of them times the epsilon of the stored element type. Returns 0 for a
// matrix without elements. Throws as singular_values does.
template <class A>
extent numerical_rank(const A& matrix, std::optional<double> tolerance = {}) {
  const auto elements = to_matrix(matrix);
  const auto values = singular_values(elements);
  if (values.empty()) return 0;
  const auto longest = static_cast<double>(std::ranges::max(elements.shape()));
  const double bound = tolerance.value_or(longest * values.front() *
                                          epsilon_of<typename decltype(elements)::value_type>);
  return static_cast<extent>(std::ranges::count_if(values, [&](double s) { return s > bound; }));
}

// Returns the rank divided by the greatest possible one, min(rows, columns); its mean over the
// experts is Eq. 23 of MxD. Returns 0 for a matrix without elements.
template <class A>
double normalised_rank(const A& matrix, std::optional<double> tolerance = {}) {
  const auto elements = to_matrix(matrix);
  const auto most = static_cast<double>(std::ranges::min(elements.shape()));
  return most == 0 ? 0 : static_cast<double>(numerical_rank(elements, tolerance)) / most;
}

}  // namespace fmoe
