// SPDX-License-Identifier: MIT
#include <fmoe/planner/match.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using G = blueprint&;

template <class Build>
lines matched(Build build) {
  blueprint g;
  const ir::node_id y = build(g, g.tensor({8, 5}));
  return describe(make_program(g, y, machine_options()));
}

TEST_CASE("an activation times a constant is a gemm, with the summed labels last", "[match]") {
  CHECK(matched([](G g, ir::node_id x) {
          return g.einsum("ti,io->to", {x, g.parameter({5, 4})});
        }) == lines{"gemm ti,io->to"});
  CHECK(matched([](G g, ir::node_id x) {
          return g.einsum("oi,ti->to", {g.parameter({4, 5}), x});
        }) == lines{"gemm ti,oi->to"});
  CHECK(matched([](G g, ir::node_id x) {
          return g.einsum("ti,iab->tab", {x, g.parameter({5, 4, 3})});
        }) == lines{"gemm ti,iab->tab"});
  CHECK(matched([](G g, ir::node_id x) { return g.einsum("ti,i->t", {x, g.parameter({5})}); }) ==
        lines{"gemm ti,i->t"});
  // only the activation has these rows of the result, and both have these batches
  CHECK(matched([](G g, ir::node_id) {
          return g.einsum("tpi,io->tpo", {g.tensor({8, 2, 5}), g.parameter({5, 4})});
        }) == lines{"gemm tpi,io->tpo"});
  CHECK(matched([](G g, ir::node_id) {
          return g.einsum("tpi,pio->tpo", {g.tensor({8, 2, 5}), g.parameter({2, 5, 4})});
        }) == lines{"gemm tpi,pio->tpo"});
  // nothing is summed, but there are new labels
  CHECK(matched([](G g, ir::node_id x) { return g.einsum("ti,o->tio", {x, g.parameter({4})}); }) ==
        lines{"gemm ti,o->tio"});
  CHECK(matched([](G g, ir::node_id) {
          return g.einsum("tip,io->tpo", {g.tensor({8, 5, 2}), g.parameter({5, 4})});
        }) == lines{"reduce tip->tpi", "gemm tpi,io->tpo"});
}

TEST_CASE("equal label sets with nothing summed are pointwise", "[match]") {
  CHECK(matched([](G g, ir::node_id x) { return g.multiply(x, g.tensor({8, 5})); }) ==
        lines{"pointwise tb->tb | *"});
  CHECK(matched([](G g, ir::node_id x) { return g.multiply(x, g.parameter({5})); }) ==
        lines{"pointwise tb->tb | *"});
  CHECK(matched([](G g, ir::node_id x) { return g.multiply(x, x); }) ==
        lines{"pointwise tb->tb | *"});
  CHECK(matched([](G g, ir::node_id x) { return g.einsum("ti,t->ti", {x, g.tensor({8})}); }) ==
        lines{"batched t,ti->ti"});
  CHECK(matched([](G g, ir::node_id) {
          return g.einsum("tab,a->tab", {g.tensor({8, 3, 4}), g.parameter({3})});
        }) == lines{"batched tab,a->tab"});
}

TEST_CASE("the rest is batched", "[match]") {
  CHECK(matched([](G g, ir::node_id x) { return g.einsum("ti,ti->t", {x, g.tensor({8, 5})}); }) ==
        lines{"batched ti,ti->t"});
  CHECK(matched([](G g, ir::node_id x) { return g.einsum("ti,tj->tij", {x, g.tensor({8, 3})}); }) ==
        lines{"batched ti,tj->tij"});
  CHECK(matched([](G g, ir::node_id) {
          return g.einsum("tpq,tqs->tps", {g.tensor({8, 2, 3}), g.tensor({8, 3, 4})});
        }) == lines{"batched tpq,tqs->tps"});
  CHECK(matched([](G g, ir::node_id) {
          return g.einsum("ab,bc->ac", {g.parameter({2, 3}), g.parameter({3, 4})});
        }) == lines{"once batched ab,bc->ac", "reduce ac->tac"});
}

TEST_CASE("labels fall into four groups", "[match]") {
  using planner::value_id;
  const planner::operation o{.what = planner::product_op{},
                             .in = {{value_id{0}, "bfs"}, {value_id{1}, "bsv"}},
                             .out = {value_id{2}, "bfv"}};
  const auto g = planner::groups_of(o);
  CHECK(g.batch == "b");
  CHECK(g.free == "f");
  CHECK(g.summed == "s");
  CHECK(g.vector == "v");
}

TEST_CASE("the factorized layers", "[match]") {
  CHECK(matched([](G g, ir::node_id x) {
          return g.einsum("tn,nr,ti,ir,or->to", {g.softmax(g.linear(x, 5, 6)), g.parameter({6, 4}),
                                                 x, g.parameter({5, 4}), g.parameter({7, 4})});
        }) == lines{"gemm ti,io->to", "softmax to->to", "gemm ti,ir->tr", "gemm tn,nr->tr",
                    "pointwise tr->tr | *", "gemm tr,or->to"});
  CHECK(matched([](G g, ir::node_id) {
          const ir::node_id g1 = g.tensor({8, 2, 4}), g2 = g.tensor({8, 2, 6});
          return g.einsum("tim,tpi,tpj->tjm", {g.tensor({8, 4, 3}), g1, g2});
        }) == lines{"batched tpi,tim->tpm", "batched tpj,tpm->tjm"});
}

TEST_CASE("labels that one operand alone has are summed first", "[match]") {
  CHECK(matched([](G g, ir::node_id x) {
          return g.einsum("ti,oi->t", {x, g.parameter({4, 5})});
        }) == lines{"once reduce oi->i", "gemm ti,i->t"});
  CHECK(matched([](G g, ir::node_id x) {
          return g.einsum("ti,ii->t", {x, g.parameter({5, 5})});
        }) == lines{"once reduce ii->i", "gemm ti,i->t"});
  CHECK(matched([](G g, ir::node_id) {
          return g.einsum("tpj,jd->td", {g.tensor({8, 2, 6}), g.parameter({6, 4})});
        }) == lines{"reduce tpj->tj", "gemm tj,jd->td"});
}

}  // namespace
