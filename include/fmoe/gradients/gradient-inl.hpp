// SPDX-License-Identifier: MIT
// What gradient.hpp declares.
#pragma once

#include <fmoe/expr/operations-inl.hpp>
#include <fmoe/gradients/gradient.hpp>

namespace fmoe::dynamic {

FMOE_INLINE expression gradient(const expression& y, const expression& of, const expression& dy) {
  detail::expects<shape_error>(y.rank() == dy.rank(), "[gradient] dy has ", dy.rank(),
                               " axes and y ", y.rank());
  return detail::made_of({y, of, dy}, of.rank(),
                         [](ir::graph& g, std::span<const ir::node_id> args) {
                           g.fix_arguments();  // the order of products depends on their tokens
                           return detail::gradient_of_part(g, args[0], args[2], args[1]);
                         });
}

}  // namespace fmoe::dynamic
