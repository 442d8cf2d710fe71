// SPDX-License-Identifier: MIT
// What gradient.hpp declares.
#pragma once

#include <fmoe/expr/operations-inl.hpp>
#include <fmoe/gradients/gradient.hpp>
#include <fmoe/ir/algebra.hpp>

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

FMOE_INLINE expression gradient(const expression& y, const expression& of) {
  detail::expects<shape_error>(y.rank() == 0, "[gradient] y has ", y.rank(),
                               " axes: pass dy, the "
                               "weight of each of its numbers");
  const expression one = detail::made_of({}, 0, [](ir::graph& g, std::span<const ir::node_id>) {
    return ir::constant(g, {}, [](std::size_t) { return 1.f; });
  });
  return gradient(y, of, one);
}

FMOE_INLINE expression stop_gradient(const expression& x) {
  return detail::made_of({x}, x.rank(), [](ir::graph& g, std::span<const ir::node_id> args) {
    return g.make(ir::stop_gradient_node{args[0]});
  });
}

}  // namespace fmoe::dynamic
