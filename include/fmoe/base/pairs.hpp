// SPDX-License-Identifier: MIT
// A sparse set of index pairs: the expert pairs that are left out of a sum.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <fmoe/base/checked.hpp>

namespace fmoe {

// The numbers of two halves of an expert, (i, j).
using index_pair = std::array<std::size_t, 2>;

}  // namespace fmoe

namespace fmoe::detail {

using pair_set = std::shared_ptr<const std::vector<index_pair>>;  // ascending, each once

}  // namespace fmoe::detail
