// SPDX-License-Identifier: MIT
// What expression.hpp declares.
#pragma once

#include <algorithm>

#include <fmoe/expr/expression.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::dynamic {

FMOE_INLINE std::size_t expression::rank() const { return node_->rank; }
FMOE_INLINE dtype expression::type() const { return node_->type; }
FMOE_INLINE bool expression::holds_nothing() const { return node_->holds_nothing(); }

FMOE_INLINE ir::node_id expression::lower(ir::graph& g) const {
  return g.once(*node_.get(), [&] {
    node_->expects_operands();
    detail::vector<ir::node_id> args;
    for (const expression& e : node_->operands) args.push_back(e.lower(g));
    return node_->lower(g, args);
  });
}

}  // namespace fmoe::dynamic

namespace fmoe::detail {

FMOE_INLINE dtype joint_type(std::span<const dynamic::expression> operands) {
  const bool is_double =
      std::ranges::any_of(operands, [](const auto& e) { return e.type() == dtype::float64; });
  return is_double ? dtype::float64 : dtype::float32;
}

FMOE_INLINE dynamic::expression leaf(const std::shared_ptr<storage>& elements, dtype type,
                                     std::span<const extent> shape, block_axis axis,
                                     leaf_role role) {
  struct made final : expression_node {
    made(ir::leaf_node n, extent r)
        : expression_node(r, n.type == dtype::float64 ? n.type : dtype::float32),
          node(std::move(n)) {}
    bool holds_nothing() const override { return node.data == nullptr; }
    ir::node_id lower(ir::graph& g, std::span<const ir::node_id>) const override {
      expects<value_error>(!holds_nothing(), "[", node.parameter ? "parameter" : "tensor",
                           "] of rank ", rank, " is used but holds nothing: set or load it");
      return g.leaf(node);
    }

    ir::leaf_node node;
  };
  const std::uint64_t version = elements == nullptr ? 0 : elements->version();
  return expression_of(new made({elements,
                                 type,
                                 {shape.begin(), shape.end()},
                                 role == leaf_role::parameter,
                                 -1,
                                 role == leaf_role::copy,
                                 axis,
                                 version},
                                shape.size()));
}

FMOE_INLINE dynamic::expression input(extent index, extent rank, extent tokens) {
  struct made final : expression_node {
    made(extent n, extent r, extent most)
        : expression_node(r, dtype::float32),
          number(static_cast<int>(n)),
          tokens(most) {}
    ir::node_id lower(ir::graph& g, std::span<const ir::node_id>) const override {
      std::vector<extent> shape(rank, all);
      shape[0] = tokens;
      return g.leaf({nullptr, dtype::float32, std::move(shape), false, number});
    }

    int number;
    extent tokens;
  };
  return expression_of(new made(index, rank, tokens));
}

FMOE_INLINE dynamic::expression of_type(dtype type, const dynamic::expression& e) {
  struct made final : expression_node {
    made(dtype t, const dynamic::expression& arg) : expression_node(arg.rank(), {arg}) { type = t; }
    ir::node_id lower(ir::graph&, std::span<const ir::node_id> args) const override {
      return args[0];
    }
  };
  return e.type() == type ? e : expression_of(new made(type, e));
}

FMOE_INLINE void expects_rank(const dynamic::expression& e, extent rank) {
  expects<shape_error>(e.rank() == rank, "[typed] the expression has ", e.rank(), " axes, not ",
                       rank);
}

}  // namespace fmoe::detail
