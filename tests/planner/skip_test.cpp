// SPDX-License-Identifier: MIT
#include <fmoe/planner/skip.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using G = blueprint&;

// Returns the program that `build` makes of a[8, 100] = top_k(x[8, 100], 3) and x.
template <class Build>
lines skipped(Build build) {
  blueprint g;
  const ir::node_id x = g.tensor({8, 100});
  const ir::node_id y = build(g, g.top_k(x, 3), x);
  planner::program p = lowered(g, y, machine_options());
  skip(p);
  return describe(p);
}

TEST_CASE("a selection's product with a constant is a gather", "[skip]") {
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("tn,no->to", {a, g.parameter({100, 6})});
        }) == lines{"top_k tb->tb", "gather tn,no->to"});
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("no,tn->to", {g.parameter({100, 6}), a});
        }) == lines{"top_k tb->tb", "gather tn,no->to"});
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("tn,nop->top", {a, g.parameter({100, 6, 2})});
        }) == lines{"top_k tb->tb", "gather tn,nop->top"});
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("tn,n->t", {a, g.parameter({100})});
        }) == lines{"top_k tb->tb", "gather tn,n->t"});
}

TEST_CASE("the table of a gather has its rows first, made once", "[skip]") {
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("tn,on->to", {a, g.parameter({6, 100})});
        }) == lines{"top_k tb->tb", "once reduce on->no", "gather tn,no->to"});
}

TEST_CASE("wherever else a selection is read it is dense, expanded once", "[skip]") {
  CHECK(skipped([](G, ir::node_id a, ir::node_id) { return a; }) ==
        lines{"top_k tb->tb", "expand ta->ta"});
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) { return g.relu(a); }) ==
        lines{"top_k tb->tb", "expand ta->ta", "pointwise tb->tb | relu"});
  CHECK(skipped([](G g, ir::node_id a, ir::node_id x) { return g.add(x, a); }) ==
        lines{"top_k tb->tb", "expand ta->ta", "pointwise tb->tb | +"});
  CHECK(skipped([](G g, ir::node_id a, ir::node_id x) {
          return g.add(g.relu(a), g.multiply(x, a));
        }).size() == 5);
  CHECK(skipped([](G g, ir::node_id a, ir::node_id x) { return g.einsum("tn,tn->t", {x, a}); }) ==
        lines{"top_k tb->tb", "expand ta->ta", "product tn,tn->t"});
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("tn,no->tno", {a, g.parameter({100, 6})});
        })[1] == "expand ta->ta");
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) { return g.top_k(a, 2); }) ==
        lines{"top_k tb->tb", "expand ta->ta", "top_k tb->tb", "expand ta->ta"});
}

TEST_CASE("several selections a token are dense", "[skip]") {
  CHECK(skipped([](G g, ir::node_id, ir::node_id) {
          return g.einsum("tpn,no->tpo",
                          {g.top_k(g.tensor({8, 2, 100}), 3), g.parameter({100, 6})});
        }).back() == "product tpn,no->tpo");
}

TEST_CASE("a selection times a constant of its axis is a selection", "[skip]") {
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("tn,no->to", {g.multiply(a, g.parameter({100})), g.parameter({100, 6})});
        }) == lines{"top_k tb->tb", "rescale tb,b->tb", "gather tn,no->to"});
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("n,no,tn->to", {g.parameter({100}), g.parameter({100, 6}), a});
        }) == lines{"top_k tb->tb", "rescale tn,n->tn", "gather tn,no->to"});
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.multiply(a, g.parameter({100}));
        }).back() == "expand ta->ta");
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("tn,no->to",
                          {g.multiply(a, g.top_k(g.parameter({100}), 9)), g.parameter({100, 6})});
        }) == lines{"top_k tb->tb", "once top_k a->a", "once expand a->a", "rescale tb,b->tb",
                    "gather tn,no->to"});
  CHECK(skipped([](G g, ir::node_id a, ir::node_id x) { return g.multiply(a, x); })[1] ==
        "expand ta->ta");
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("tn,n->t", {a, g.parameter({100})});
        })[1] == "gather tn,n->t");
}

TEST_CASE("selections of several rows times a constant of their axes are selections", "[skip]") {
  const auto steps = [](std::string_view product, const extents& factors) {
    blueprint g;
    const ir::node_id a = g.top_k(g.tensor({8, 3, 100}), 2),
                      b = g.einsum(product, {a, g.parameter(factors)});
    planner::program p =
        lowered(g, g.einsum("thn,no->to", {b, g.parameter({100, 6})}), machine_options());
    skip(p);
    return describe(p);
  };
  CHECK(steps("thn,hn->thn", {3, 100})[1] == "rescale thn,hn->thn");
  CHECK(steps("thn,n->thn", {100})[1] == "rescale thn,n->thn");
  CHECK(steps("thn,nh->thn", {100, 3})[1] == "expand tab->tab");
  CHECK(steps("thn,h->thn", {3})[1] == "expand tab->tab");

  // The order search knows it: dense, b would meet the product of x and the table last.
  blueprint g;
  const ir::node_id b =
      g.einsum("thn,hn->thn", {g.top_k(g.tensor({8, 3, 100}), 2), g.parameter({3, 100})});
  planner::program p =
      lowered(g, g.einsum("thn,tr,hnr->t", {b, g.tensor({8, 1000}), g.parameter({3, 100, 1000})}),
              machine_options());
  skip(p);
  CHECK(describe(p)[2] == "gather thn,hnr->tr");
}

TEST_CASE("gather and expansion of one selection stand side by side", "[skip]") {
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.add(g.einsum("tn,no->to", {a, g.parameter({100, 100})}), a);
        }) == lines{"top_k tb->tb", "gather tn,no->to", "expand ta->ta", "pointwise to->to | +"});
}

TEST_CASE("top_k of all keeps its operand; of more it is refused", "[skip]") {
  const auto keep = [](extent k) {
    blueprint g;
    const ir::node_id y =
        g.einsum("tn,no->to", {g.top_k(g.relu(g.tensor({8, 10})), k), g.parameter({10, 6})});
    return describe(lowered(g, y, machine_options()));
  };
  CHECK(keep(9).size() == 3);
  CHECK(keep(10) == lines{"pointwise tb->tb | relu", "product tn,no->to"});
  CHECK_THROWS_AS(keep(11), value_error);
  CHECK_THROWS_WITH(
      keep(11), "[top_k] K is 11 and the scores' last axis has 10: fmoe::all keeps every score");
}

TEST_CASE("selections of constants are dense where they are a table", "[skip]") {
  CHECK(skipped([](G g, ir::node_id a, ir::node_id) {
          return g.einsum("tn,no->to", {a, g.top_k(g.parameter({100, 6}), 2)});
        }) == lines{"top_k tb->tb", "once top_k ab->ab", "once expand ab->ab", "gather tn,no->to"});
}

}  // namespace
