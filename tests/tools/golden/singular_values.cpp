// SPDX-License-Identifier: MIT
#include "singular_values.hpp"

#include <Eigen/Dense>

namespace fmoe::golden {

std::vector<double> singular_values(const tensor<double, 2>& matrix) {
  const auto [rows, columns] = matrix.shape();
  using rows_first = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const rows_first m = Eigen::Map<const rows_first>(matrix.data(), static_cast<Eigen::Index>(rows),
                                                    static_cast<Eigen::Index>(columns));
  const Eigen::VectorXd values = Eigen::JacobiSVD<rows_first>(m).singularValues();
  return {values.begin(), values.end()};
}

}  // namespace fmoe::golden
