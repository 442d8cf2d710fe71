// SPDX-License-Identifier: MIT
// Eigen's singular values take half a minute to compile, so svd.cpp compiles them once for the
// tests that need them.
#pragma once

#include <Eigen/SVD>

extern template class Eigen::BDCSVD<Eigen::MatrixXd>;
