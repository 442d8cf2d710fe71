// SPDX-License-Identifier: MIT
// States extents that nothing else in an expression tells; a compiled layer must know those of its
// arguments.
#pragma once

#include <fmoe/expr/expression.hpp>

namespace fmoe::detail {

template <expression E>
struct sized_expression : composed_of<E> {
  static constexpr extent rank = E::rank;

  E arg;
  std::array<extent, E::rank> shape;

  ir::node_id lower(ir::graph& g) const {
    const ir::node_id id = arg.lower(g);
    for (extent k = 0; k < rank; ++k)
      expects<shape_error>(g.fix(id, k, shape[k]), "[sized] axis ", k, " is ",
                           g.extent_of(g[id].axes[k]), " and is said to be ", shape[k]);
    return id;
  }
};

}  // namespace fmoe::detail

namespace fmoe {

// Returns e, whose extents must be those of `shape`; an extent that is `all` may be any. When
// it is lowered, throws shape_error if one differs.
template <operand E>
auto sized(const E& e, const std::array<std::size_t, expression_t<E>::rank>& shape) {
  return detail::sized_expression<expression_t<E>>{{}, as_expression(e), shape};
}

}  // namespace fmoe
