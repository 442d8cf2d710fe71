// SPDX-License-Identifier: MIT
// Computes the singular values of a matrix, largest first.
#pragma once

#include <vector>

#include <fmoe/tensor.hpp>

namespace fmoe::golden {

std::vector<double> singular_values(const tensor<double, 2>& matrix);

}  // namespace fmoe::golden
