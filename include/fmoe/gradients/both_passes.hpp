// SPDX-License-Identifier: MIT
// The forward and the backward pass of a layer, once its expressions are a graph.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/gradients/gradient_run.hpp>
#include <fmoe/run/cost.hpp>
#include <fmoe/run/explain.hpp>

namespace fmoe {

// The costs of a step, counted as `cost` counts them, of the experts that its plan runs: bytes are
// those of a span of tokens.
struct step_costs {
  cost_figures forward;  // of the layer alone
  cost_figures both;     // of both passes, with the gradients of x and of all parameters
};

}  // namespace fmoe

namespace fmoe::detail {

// Types are those in which the leaves are stored.
template <class T, class Level, type_set Types = all_types>
class both_passes {
 public:
  // The layer's expressions are nodes of g. Throws as compile_gradients does.
  both_passes(ir::graph g, const gradient_inputs& in,
              const std::vector<released_parameter>& parameters, extent tokens,
              const compile_options& options)
      : graph_(std::move(g)),
        options_(options) {
    cpu::use_weights<T, Level, Types>();
    auto plan = gradient_graph(graph_, in, parameters);
    roots_ = plan.roots;
    forward_ = ir::node_list(in.y);
    run_.emplace(std::move(plan), tokens, options.sparse_gradients,
                 [&](const ir::node_list& roots, extent span, const in_place& arrays) {
                   return compile_graph<T, Level>(graph_, roots, span, options, arrays);
                 });
  }

  gradient_run<T>& run() { return *run_; }
  const gradient_run<T>& run() const { return *run_; }

  explanation explain() const {
    explanation e = explain_graph<T, Level>(graph_, roots_, run_->span(), options_, run_->arrays());
    const extent more = run_->bytes_of_span();
    e.memory.call += more;
    e.text = "forward and backward, " + std::to_string(run_->span()) + " tokens at a time; " +
             std::to_string(more) + " bytes for the gradients of a span\n" + e.text;
    return e;
  }
  step_costs cost() const {
    const auto of = [&](const ir::node_list& results) {
      return factorized_cost<T, Level>(graph_, results, run_->span(), options_);
    };
    return {of(forward_), of(roots_)};
  }

 private:
  ir::graph graph_;
  ir::node_list forward_{ir::node_id{}};  // the results of the layer
  ir::node_list roots_{ir::node_id{}};    // these, dx, and the gradients of the parameters
  compile_options options_;
  std::optional<gradient_run<T>> run_;
};

}  // namespace fmoe::detail
