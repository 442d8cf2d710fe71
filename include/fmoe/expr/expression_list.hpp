// SPDX-License-Identifier: MIT
// The operands of one expression, in their order. They are bases of one struct, because std::tuple
// and std::apply make a dozen functions for each type, and layers make hundreds of types.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmoe/expr/expression.hpp>

namespace fmoe::detail {

template <std::size_t Index, expression E>
struct listed_expression {
  E expression;
};

template <class Indices, expression... Es>
struct indexed_expressions;
template <std::size_t... Index, expression... Es>
struct indexed_expressions<std::index_sequence<Index...>, Es...> : listed_expression<Index, Es>... {
  // Adds the expressions to the graph and returns their nodes.
  std::vector<ir::node_id> lower(ir::graph& g) const {
    return {listed_expression<Index, Es>::expression.lower(g)...};
  }

  // Tells of each expression whether it is a tensor that holds nothing.
  std::array<bool, sizeof...(Es)> empty() const {
    return {is_empty(listed_expression<Index, Es>::expression)...};
  }

 private:
  template <class T, extent Rank>
  static bool is_empty(const leaf<T, Rank>& e) {
    return e.elements == nullptr;
  }
  static bool is_empty(const expression_base&) { return false; }
};

template <expression... Es>
using expression_list = indexed_expressions<std::index_sequence_for<Es...>, Es...>;

}  // namespace fmoe::detail
