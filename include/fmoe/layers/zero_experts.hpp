// SPDX-License-Identifier: MIT
// What a mixture has where some of its experts return their input (the zero-computation experts of
// LongCat-Flash, 2025, section 2.1): their columns stand behind those of the other experts.
#pragma once

#include <fmoe/run/compile.hpp>

namespace fmoe::detail {

inline ir::node_id append_columns(ir::graph& g, ir::node_id a, ir::node_id b) {
  return g.concat({a, b}, g.shape(a).size() - 1);
}

// [..., n], [..., z] -> [..., n + z]: the columns of a, then those of b, if the condition holds;
// else a. choose would hold a twice.
template <operand A, operand B>
auto appended_if(bool condition, const A& a, const B& b) {
  return joined<&append_columns, expression_t<A>, expression_t<B>>{
      {}, as_expression(a), as_expression(b), condition};
}

// [t, n + z] -> [t, count]: neighbouring columns; all of them if the layer has no zero experts.
template <expression A>
struct column_range : composed_of<A> {
  static constexpr extent rank = A::rank;

  A a;
  extent first, count;
  bool is_cut;

  ir::node_id lower(ir::graph& g) const {
    const ir::node_id all_columns = a.lower(g);
    return is_cut ? g.slice(all_columns, rank - 1, first, count) : all_columns;
  }
};

template <operand A>
auto columns_if(bool condition, const A& a, extent first, extent count) {
  return column_range<expression_t<A>>{{}, as_expression(a), first, count, condition};
}

template <expression A>
struct own_columns : composed_of<A> {
  static constexpr extent rank = A::rank;

  A a;
  extent count;
  bool is_cut;

  ir::node_id lower(ir::graph& g) const {
    const ir::node_id all_columns = a.lower(g);
    if (!is_cut) return all_columns;
    const ir::node_id own = g.slice(all_columns, rank - 1, 0, count);
    const auto* const chosen = get_if<ir::select_node>(&g[all_columns].op);
    const bool has_most = chosen != nullptr && chosen->rule.what == selection_rule::kind::top_k;
    const extent most = has_most ? chosen->rule.keep : count;
    if (most >= count) return g.select({selection_rule::kind::nonzero}, own);
    const selection_rule largest{selection_rule::kind::top_k, most, 0, weighting::score};
    return g.select(largest, own, g.map(pointwise::abs, 0, own));
  }
};

// [t, n + z] -> [t, n]: the coefficients of experts with weights, or all of them if the layer has
// no zero experts. They are a selection, whatever a is: a contraction visits those that are not 0,
// and at most K a row if a is a top-K.
template <operand A>
auto own_coefficients(bool condition, const A& a, extent count) {
  return own_columns<expression_t<A>>{{}, as_expression(a), count, condition};
}

}  // namespace fmoe::detail
