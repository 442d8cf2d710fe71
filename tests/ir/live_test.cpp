// SPDX-License-Identifier: MIT
#include <fmoe/ir/live.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using ir::einsum_node;
using ir::node_id;

TEST_CASE("live keeps what a result needs, in its order", "[live]") {
  blueprint g;
  const ir::node_id unused = g.parameter({4}), x = g.tensor({6, 5}), w = g.parameter({5, 4}),
                    y = g.einsum("ti,io->to", {x, w});
  g.softmax(g.add(y, unused));
  const ir::node_id z = g.relu(y);
  const ir::live_graph part = ir::live(g, ir::node_list(std::vector{z, x, z}));
  CHECK(part.nodes.size() == 4);
  CHECK(part.roots == std::vector{node_id{3}, node_id{0}, node_id{3}});
  CHECK(get<einsum_node>(part.nodes[node_id{2}].op).args == std::vector{node_id{0}, node_id{1}});
  CHECK(part.nodes.shape(node_id{3}) == extents{6, 4});
}

TEST_CASE("live follows every operand of a node", "[live]") {
  blueprint g;
  const ir::node_id x = g.tensor({6, 4}), bound = g.tensor({6}), ranked = g.tensor({6, 4}),
                    chosen = g.select({selection_rule::kind::expert_choice, 2}, x, ranked),
                    gated = g.map_rows(row_function::bounded_softmax, 0, chosen, bound),
                    y = g.concat({g.make(ir::append_node{gated}), x}, 1);
  CHECK(ir::live(g, y).nodes.size() == g.size());
}

TEST_CASE("an extent that an unneeded node fixed stays known", "[live]") {
  blueprint g;
  const ir::node_id x = g.argument(0, {6, all}), y = g.relu(x);
  g.linear(x, 5, 4);
  const ir::live_graph part = ir::live(g, y);
  CHECK(part.nodes.size() == 2);
  CHECK(part.nodes.shape(part.roots[0]) == extents{6, 5});
}

TEST_CASE("what no result needs is not planned", "[live]") {
  blueprint g;
  const ir::node_id x = g.tensor({6, 5}), y = g.linear(x, 5, 4);
  g.einsum("ti,tj->ij", {x, x});  // would leave no token axis
  g.top_k(x, 9);                  // would be refused
  CHECK(describe(make_program(g, y, machine_options())) == lines{"gemm ti,io->to"});
  CHECK(make_program(g, y, machine_options()).values.size() == 3);
}

}  // namespace
