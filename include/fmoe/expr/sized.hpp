// SPDX-License-Identifier: MIT
// States extents that nothing else in an expression tells; a compiled layer must know those of its
// arguments.
#pragma once

#include <array>

#include <fmoe/expr/operations.hpp>

namespace fmoe {

// Returns e, whose extents must be those of `shape`; an extent that is `all` may be any. When
// it is lowered, throws shape_error if one differs.
template <operand E>
auto sized(const E& e, const std::array<std::size_t, expression_t<E>::rank>& shape) {
  return detail::typed<expression_t<E>::rank>(
      [&](const dynamic::expression& x) { return dynamic::sized(x, shape); }, e);
}

}  // namespace fmoe
