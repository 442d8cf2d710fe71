// SPDX-License-Identifier: MIT
// The planner's choice for an expression: its steps as text and as a drawing, with their costs,
// beside a drawing of the graph that it started from.
#pragma once

#include <ostream>

#include <fmoe/run/compile_graph.hpp>
#include <fmoe/run/cost.hpp>

namespace fmoe {

// The memory of a compiled layer, in bytes. With compile_options::keep_weights = false the weights
// that are packed are not kept.
struct memory_figures {
  std::size_t weights = 0;  // as they are stored
  std::size_t packed = 0;   // what is made of them for the steps
  std::size_t call = 0;     // of each call that runs at the same time, on this arena's threads
};

// Drawings are for Graphviz: dot -Tsvg.
struct explanation {
  // The backend and its machine, costs, memory, and a line for each step with the time that the
  // planner predicts for the machine.
  std::string text;
  // The drawing of the plan: a box for each step, ellipses for what it reads and writes.
  std::string dot;
  std::string graph;   // the drawing of the expression: a box for each operation
  double seconds = 0;  // of a call, as the planner predicts it for its machine
  memory_figures memory;
  bool tells_bounds = false;  // a selection is screened, and ranks can tell bounds of its scores

  friend std::ostream& operator<<(std::ostream& out, const explanation& e) { return out << e.text; }
};

}  // namespace fmoe

namespace fmoe::detail {

// For `tokens` rows, or with `all` for as many as the graph's inputs have; the wall of
// compile_graph.hpp.
template <class T, class Level>
explanation explain_graph(const ir::graph& g, const ir::node_list& results, extent tokens,
                          const compile_options& options,
                          const std::optional<in_place>& arrays = {});

}  // namespace fmoe::detail

namespace fmoe {

// The plan of an expression for as many tokens as it has, as the backend of the options would run
// it. Throws as evaluate does; runs nothing.
//
//   std::cout << explain(layer(x));
//   std::cout << explain(layer(x)).memory.packed << " bytes of packed weights";
template <class Level = cpu::native, operand E>
explanation explain(const E& e, const compile_options& options = {}) {
  using X = expression_t<E>;
  const auto made = detail::lowered_for<Level>(as_expression(e));
  return detail::explain_graph<typename X::scalar, Level>(made.nodes(), made.roots(), all, options);
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/run/explain-inl.hpp>
#endif
