// SPDX-License-Identifier: MIT
// The axes along which a plan reads its weights.
#pragma once

#include <vector>

#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/base/separate.hpp>
#include <fmoe/expr/lowered_graph.hpp>

namespace fmoe::detail {

struct read_axis {
  const storage* elements;
  block_axis axis;
};

// Returns for each parameter the axis along which its blocks lie best: the one that its product
// sums over, or the rows that a selection gathers. Parameters that are read otherwise are not
// listed.
template <class Level>
std::vector<read_axis> read_axes(const lowered_graph& layer);

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/run/read_axes-inl.hpp>
#endif
