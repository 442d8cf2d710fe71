// SPDX-License-Identifier: MIT
#include "svd.hpp"

template class Eigen::BDCSVD<Eigen::MatrixXd>;
