// SPDX-License-Identifier: MIT
#include <fmoe/planner/expand.hpp>

#include <optional>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// The subscripts of a graph's einsums, in their order.
lines einsums_of(const ir::graph& g) {
  lines r;
  for (const ir::node_id id : g.ids())
    if (const auto* e = get_if<ir::einsum_node>(&g[id].op)) r.push_back(e->subscripts);
  return r;
}

planner::expanded_graph expanded(const ir::graph& g, std::vector<ir::node_id> roots,
                                 bool naive = false) {
  planner::plan_options o = machine_options();
  o.naive = naive;
  return planner::expand(g, ir::node_list(std::move(roots)), o);
}

struct mixture {  // the decoder of MxD
  blueprint g;
  ir::node_id a = g.tensor({600, 90}), z = g.tensor({600, 70}), c = g.parameter({90, 50}),
              d = g.parameter({70, 50}), y = g.einsum("tn,no,th,ho->to", {a, c, z, d});
};

TEST_CASE("an einsum of several operands becomes pairs, parameters with rows", "[expand]") {
  const mixture m;
  const planner::expanded_graph e = expanded(m.g, {m.y});
  CHECK(einsums_of(e.nodes) == lines{"ho,th->ot", "no,tn->ot", "ot,ot->to"});
  CHECK(e.roots[0] == ir::node_id{6});
  CHECK(e.inner == detail::vector{false, false, false, false, true, true, false});
  CHECK(e.nodes.shape(e.roots[0]) == extents{600, 50});
}

TEST_CASE("the naive form multiplies the parameters first", "[expand]") {
  const mixture m;
  CHECK(einsums_of(expanded(m.g, {m.y}, true).nodes)[0] == "no,ho->noh");
}

TEST_CASE("equal pairs of two einsums are one node, whatever they call their labels", "[expand]") {
  mixture m;
  const ir::node_id again = m.g.einsum("ba,ac,cd->bd", {m.a, m.c, m.g.parameter({50, 9})});
  const planner::expanded_graph e = expanded(m.g, {m.y, again});
  CHECK(einsums_of(e.nodes) == lines{"ho,th->ot", "no,tn->ot", "ot,ot->to", "cd,cb->bd"});
  const planner::program p = make_program(m.g, ir::node_list(std::vector{m.y, again}), {});
  CHECK(std::ranges::count(describe(p), "gemm tn,no->to") == 1);
}

TEST_CASE("a pair in the other order is the same pair", "[expand]") {
  blueprint g;
  const ir::node_id x = g.tensor({600, 50}), w = g.parameter({50, 40}), v = g.parameter({40, 3}),
                    y = g.einsum("ti,io,ok->tk", {x, w, v}),
                    z = g.einsum("bc,ab,cd->ad", {w, x, g.parameter({40, 5})});
  CHECK(einsums_of(expanded(g, {y, z}).nodes) == lines{"io,ti->ot", "ok,ot->tk", "cd,ca->ad"});
}

TEST_CASE("two operands that meet along other axes are another pair", "[expand]") {
  blueprint g;
  const ir::node_id x = g.tensor({600, 5, 5}), w = g.parameter({5, 5}),
                    product = g.einsum("tij,jk->tik", {x, w}),
                    elementwise = g.einsum("tij,ij->tij", {x, w});
  CHECK(einsums_of(expanded(g, {product, elementwise}).nodes) ==
        lines{"jk,tij->tik", "ij,tij->tij"});
}

TEST_CASE("labels that one operand alone has are summed first, and diagonals taken", "[expand]") {
  blueprint g;
  const ir::node_id x = g.tensor({600, 7, 7}), w = g.parameter({7, 40, 3}),
                    y = g.einsum("tii,iok->to", {x, w});
  CHECK(einsums_of(expanded(g, {y}).nodes) == lines{"tii->ti", "iok->io", "io,ti->to"});
}

TEST_CASE("an einsum with a mask keeps its operands beside the sum without it", "[expand]") {
  blueprint g;
  const auto pairs = std::make_shared<std::vector<index_pair>>(1, index_pair{3, 4});
  const ir::node_id x = g.tensor({600, 50}), w = g.parameter({50, 40}), v = g.parameter({40, 3}),
                    y = g.einsum("ti,io,ok,io->tk",
                                 {x, w, v, g.make(ir::mask_node{pairs, 50, 40})});
  const planner::expanded_graph e = expanded(g, {y});
  CHECK(einsums_of(e.nodes) == lines{"io,ti->ot", "ok,ot->tko", "ti,io,ok,io->tk"});
  const auto& masked = get<ir::einsum_node>(e.nodes[e.roots[0]].op);
  CHECK(masked.unmasked ==
        std::optional(e.roots[0] == ir::node_id{6} ? ir::node_id{5} : ir::node_id{0}));
}

TEST_CASE("what an einsum shares with a result is computed once", "[expand]") {
  blueprint g;
  const ir::node_id x = g.argument(0, {600, 50}), w = g.parameter({50, 40}),
                    h = g.einsum("ti,io->to", {x, w}),
                    y = g.einsum("ab,bc,cd->ad", {x, w, g.parameter({40, 3})});
  CHECK(describe(make_program(g, ir::node_list(std::vector{h, y}), {})) ==
        lines{"gemm ti,io->to", "gemm tc,cd->td"});
}

}  // namespace
