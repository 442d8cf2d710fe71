// SPDX-License-Identifier: MIT
// A sparse set of index pairs: the pairs of experts that a sum leaves out.
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

// The pairs are in ascending order, each once.
using pair_set = std::shared_ptr<const std::vector<index_pair>>;

}  // namespace fmoe::detail
