// SPDX-License-Identifier: MIT
// What expression.hpp declares.
#pragma once

#include <fmoe/expr/expression.hpp>

namespace fmoe::detail {

FMOE_INLINE ir::node_id leaf_elements::lower(ir::graph& g, dtype type,
                                             std::span<const extent> shape, block_axis axis) const {
  expects<value_error>(elements != nullptr, "[", is_parameter ? "parameter" : "tensor",
                       "] of rank ", shape.size(), " is used but holds nothing: set or load it");
  return g.leaf(
      {elements, type, {shape.begin(), shape.end()}, is_parameter, -1, is_copy, axis, version});
}

}  // namespace fmoe::detail
