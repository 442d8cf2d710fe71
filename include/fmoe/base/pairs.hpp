// SPDX-License-Identifier: MIT
// A sparse set of index pairs: the pairs of experts that a sum leaves out.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <fmoe/base/checked.hpp>

namespace fmoe {

using index_pair = std::array<extent, 2>;
// In ascending order, each pair once.
using pair_set = std::shared_ptr<const std::vector<index_pair>>;

}  // namespace fmoe
