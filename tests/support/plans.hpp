// SPDX-License-Identifier: MIT
// Graphs without data, and programs and plans as lines of text, for tests of the planner's passes.
#pragma once

#include <fmoe/plan/plan.hpp>
#include <fmoe/planner/program.hpp>
#include <fmoe/run/compile.hpp>

#include "catch.hpp"
#include "limits.hpp"

namespace fmoe::test {

using extents = std::vector<extent>;
using lines = std::vector<std::string>;

// A graph whose leaves have a shape but no elements, because the planner reads none.
struct blueprint : ir::graph {
  ir::node_id tensor(extents s) {
    return leaf({std::make_shared<storage>(extent{0}), dtype::float32, std::move(s)});
  }
  ir::node_id parameter(extents s) {
    return leaf({std::make_shared<storage>(extent{0}), dtype::float32, std::move(s), true});
  }
  ir::node_id argument(int index, extents s) {
    return leaf({nullptr, dtype::float32, std::move(s), false, index});
  }
  ir::node_id relu(ir::node_id x) { return map(pointwise::relu, 0, x); }
  ir::node_id top_k(ir::node_id x, extent k) { return select({selection_rule::kind::top_k, k}, x); }
  ir::node_id softmax(ir::node_id x) { return map_rows(row_function::softmax, 0, x); }
  // x w; x may have more axes before the contracted one than the token's.
  ir::node_id linear(ir::node_id x, extent in, extent out) {
    return einsum("ti,io->to", {x, parameter({in, out})});
  }
};

// The program that is counted, the program before the passes that follow lowering, the program that
// is run, and the CPU's plan of a graph or of such a program.
planner::program make_program(const ir::graph& g, const ir::node_list& results,
                              const planner::plan_options& how);
planner::program lowered(const ir::graph& g, const ir::node_list& results,
                         const planner::plan_options& how);
planner::program planned(const ir::graph& g, const ir::node_list& results,
                         const planner::plan_options& how);
plan::step_plan make_plan(const ir::graph& g, const ir::node_list& results, extent tokens,
                          const planner::plan_options& how);
plan::step_plan make_plan(const planner::program& p, extent tokens,
                          const planner::plan_options& how);

// The plan of a layer, as compile makes it on this CPU.
template <class T, class Layer, extent... Ranks>
plan::step_plan plan_of(const Layer& layer, arguments<Ranks...> ranks, extent tokens,
                        const planner::plan_options& how = {}) {
  const auto e =
      apply_to_arguments(layer, ranks, tokens, std::make_integer_sequence<int, sizeof...(Ranks)>{});
  const lowered_graph made(result_list<std::remove_const_t<decltype(e)>>::untyped(e));
  return make_plan(made.nodes(), made.roots(), tokens, on_this_cpu<T>(how));
}

inline planner::plan_options machine_options() {
  planner::plan_options o;
  o.kernels.panel = 32;
  o.kernels.selection_size = [](extent k) { return 4 * k + 256; };
  return o;
}

inline planner::plan_options tiny_options() {
  planner::plan_options o = machine_options();
  o.shape.streamed = 1 << 10;
  o.shape.chunk = 64;
  o.sum_block = 16;
  o.shape.tile = 24;
  return o;
}

// The layer of mxd.hpp with GELU in its erf form and all biases.
inline ir::node_id mxd_graph(blueprint& g, extent tokens, extent i, extent h, extent n, extent o,
                             extent k) {
  const ir::node_id x = g.tensor({tokens, i});
  const ir::node_id a =
      g.top_k(g.relu(g.add(g.einsum("ti,in->tn", {x, g.parameter({i, n})}), g.parameter({n}))), k);
  const ir::node_id z = g.map(
      pointwise::gelu, 0, g.add(g.einsum("ti,ih->th", {x, g.parameter({i, h})}), g.parameter({h})));
  return g.add(g.einsum("tn,no,th,ho->to", {a, g.parameter({n, o}), z, g.parameter({h, o})}),
               g.parameter({o}));
}

// Returns lines such as "gemm ti,in->tn | + | relu". 't' comes before the labels of a value with
// one row for each token, and "once" before constants.
lines describe(const planner::program& p);
lines describe(const plan::step_plan& p);

// Checks temporaries by their uses in the steps: nothing is read before it is written, and two that
// are alive at the same step do not share memory; a loop is one step.
bool placement_is_sound(const plan::step_plan& p);

// How lines call the kind of a step.
std::string kind_of(const plan::step& s);

}  // namespace fmoe::test
