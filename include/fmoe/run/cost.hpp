// SPDX-License-Identifier: MIT
// The cost of an expression, factorized and naive.
#pragma once

#include <fmoe/planner/cost_figures.hpp>
#include <fmoe/run/evaluate.hpp>

namespace fmoe {

// The costs that `cost` returns.
struct cost_report {
  cost_figures factorized;
  cost_figures naive;  // the naive plan, step by step; it still skips what top_k leaves out
  // For each token, in closed form: each element of a materialised weight counts one. A weight is
  // made of the parameters of one einsum; experts with a function between their parameters, as
  // Monet's, are not materialised.
  double naive_multiply_adds = 0;
};

}  // namespace fmoe

namespace fmoe::detail {

// The wall of compile_graph.hpp. For `tokens` rows, or as many as the graph's inputs have, as the
// backend of `options` would compute them.
template <class T, class Level>
cost_figures factorized_cost(const ir::graph& g, const ir::node_list& results, extent tokens,
                             const compile_options& options);
template <class Level>
cost_report cost_of_result(const lowered_graph& e, extent element_bytes);

}  // namespace fmoe::detail

namespace fmoe {

// Returns the costs of an expression for as many tokens as it has. Throws as evaluate does; it
// computes nothing.
//
//   const cost_report work = cost(layer(x));
//   std::cout << work.factorized.multiply_adds / work.naive_multiply_adds;
template <class Level = cpu::native, operand E>
cost_report cost(const E& e) {
  using X = expression_t<E>;
  return detail::cost_of_result<Level>(detail::lowered_for<Level>(as_expression(e)),
                                       sizeof(typename X::scalar));
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/run/cost-inl.hpp>
#endif
