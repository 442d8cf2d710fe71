// SPDX-License-Identifier: MIT
// Expressions whose rank and element type are known when the program runs, for languages without
// fmoe's types and for programs that read equations. They lower to the graphs that typed
// expressions lower to, so plans, kernels and bits are the same.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/arrays/any_tensor.hpp>
#include <fmoe/expr/expression.hpp>

namespace fmoe::dynamic {

// A tensor of any type and rank: `type`, `shape`, and the elements, which its copies share.
using tensor = detail::any_tensor;

// A lazy expression. Its copies are the same expression, and a part that several expressions share
// is computed once.
class expression {
 public:
  using lowering = std::function<ir::node_id(ir::graph&)>;

  // An expression with `rank` axes, computed in `type`: float64, or float32 for all other types.
  expression(std::size_t rank, dtype type, lowering lower)
      : node_(std::make_shared<const node>(
            node{rank, type == dtype::float64 ? type : dtype::float32, std::move(lower)})) {}

  // A typed expression, tensor or parameter.
  template <operand E>
  explicit expression(const E& e)
      : expression(expression_t<E>::rank, detail::dtype_of<typename expression_t<E>::scalar>,
                   [x = as_expression(e)](ir::graph& g) { return x.lower(g); }) {}

  std::size_t rank() const { return node_->rank; }
  dtype type() const { return node_->type; }
  ir::node_id lower(ir::graph& g) const {
    return g.once(node_, [&] { return node_->lower(g); });
  }

 private:
  struct node {
    std::size_t rank;
    dtype type;
    lowering lower;
  };
  std::shared_ptr<const node> node_;
};

// Returns a tensor as an operand. What belongs to a layer is a parameter: its packed form stays
// with its elements. Throws value_error for a tensor that holds nothing.
inline expression constant(const tensor& t, bool is_parameter = false) {
  detail::expects<value_error>(!t.empty(), "[constant] a tensor of rank ", t.shape.size(),
                               " holds nothing: set or load it");
  return {t.shape.size(), t.type, [=, version = t.elements->version()](ir::graph& g) {
            return g.leaf({t.elements, t.type, t.shape, is_parameter, -1, false, t.axis, version});
          }};
}

// Stands for an input of a compiled expression: number `index`, counted from 0. Its first axis
// counts tokens, and its other extents follow from what it meets. Throws shape_error for rank 0.
inline expression input(std::size_t index, std::size_t rank = 2) {
  detail::expects<shape_error>(rank >= 1, "[input] an input has a leading token axis");
  return {rank, dtype::float32, [=](ir::graph& g) {
            const std::vector<std::size_t> shape(rank, all);
            return g.leaf({nullptr, dtype::float32, shape, false, static_cast<int>(index)});
          }};
}

}  // namespace fmoe::dynamic

namespace fmoe::detail {

// A dynamic expression where the type of an expression tells its rank and its scalar.
template <class T, extent Rank>
struct typed_expression : expression_base {
  using scalar = T;
  static constexpr extent rank = Rank;

  dynamic::expression hidden;

  ir::node_id lower(ir::graph& g) const { return hidden.lower(g); }
};

}  // namespace fmoe::detail

namespace fmoe::dynamic {

// Returns the expression with its rank in its type, for layers. Throws shape_error if it has
// another rank.
template <std::size_t Rank, class T = float>
auto typed(const expression& e) {
  detail::expects<shape_error>(e.rank() == Rank, "[typed] the expression has ", e.rank(),
                               " axes, not ", Rank);
  return detail::typed_expression<T, Rank>{{}, e};
}

}  // namespace fmoe::dynamic
