// SPDX-License-Identifier: MIT
// The singular values of a matrix, largest first.
#pragma once

#include <vector>

#include <fmoe/tensor.hpp>

namespace fmoe::golden {

std::vector<double> singular_values(const tensor<double, 2>& matrix);

}  // namespace fmoe::golden
