// SPDX-License-Identifier: MIT
// The numbers of nodes and of axes in a graph.
#pragma once

#include <cstdint>

namespace fmoe::ir {

enum class node_id : std::uint32_t {};
enum class axis_id : std::uint32_t {};

}  // namespace fmoe::ir
