// SPDX-License-Identifier: MIT
#include <fmoe/ir/live.hpp>
#include <fmoe/planner/tokens.hpp>

#include <optional>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// True if the expression that `build` makes of x[6, 5] has a token axis.
template <class Build>
bool has_tokens(Build build) {
  blueprint g;
  const ir::node_id y = build(g, g.tensor({6, 5}));
  const ir::live_graph needed = ir::live(g, y);
  return planner::token_search(needed.nodes, needed.roots, false).axes().has_value();
}

TEST_CASE("the token axis is the result's first, carried by every operation", "[tokens]") {
  using G = blueprint&;
  CHECK(has_tokens([](G, ir::node_id x) { return x; }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.linear(x, 5, 4); }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.einsum("ti->t", {x}); }));
  CHECK(has_tokens([](G g, ir::node_id x) {
    return g.einsum("ti,io,t->to", {x, g.parameter({5, 4}), g.tensor({6})});
  }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.relu(g.add(x, g.parameter({5}))); }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.multiply(x, x); }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.softmax(x); }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.top_k(x, 2); }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.concat({x, x}, 1); }));
  CHECK(has_tokens(
      [](G g, ir::node_id x) { return g.einsum("ti,si->ts", {x, g.parameter({4, 5})}); }));
  CHECK(has_tokens(
      [](G g, ir::node_id x) { return g.add(g.tensor({2, 6, 5}), x); }));  // x is a constant there
  CHECK(has_tokens([](G g, ir::node_id) { return mxd_graph(g, 5, 4, 6, 7, 3, 2); }));
  blueprint g;
  const ir::node_id y = g.linear(g.tensor({6, 5}), 5, 4);
  CHECK(*planner::token_search(g, y, false).axes() == planner::token_axes{0, std::nullopt, 0});
}

TEST_CASE("a token axis may stand elsewhere on the way", "[tokens]") {
  using G = blueprint&;
  const auto turned = [](G g, ir::node_id x) {
    return g.einsum("ti,io->ot", {x, g.parameter({5, 4})});
  };
  CHECK(!has_tokens(turned));
  CHECK(has_tokens([&](G g, ir::node_id x) { return g.einsum("ot->to", {turned(g, x)}); }));
  CHECK(has_tokens([&](G g, ir::node_id x) {
    return g.einsum("ot->to", {g.concat({turned(g, x), turned(g, x)}, 0)});
  }));
  CHECK(!has_tokens([&](G g, ir::node_id x) {
    return g.einsum("ot->to", {g.concat({turned(g, x), turned(g, x)}, 1)});
  }));
  CHECK(!has_tokens(
      [&](G g, ir::node_id x) { return g.einsum("ot->to", {g.softmax(turned(g, x))}); }));
  blueprint g;
  const ir::node_id y = g.einsum("ot->to", {turned(g, g.tensor({6, 5}))});
  CHECK(*planner::token_search(g, y, false).axes() == planner::token_axes{0, std::nullopt, 1, 0});
}

TEST_CASE("rows that depend on each other have no token axis", "[tokens]") {
  using G = blueprint&;
  CHECK(!has_tokens([](G g, ir::node_id x) { return g.einsum("ti->it", {x}); }));
  CHECK(!has_tokens([](G g, ir::node_id x) { return g.einsum("ti,si->ts", {x, x}); }));
  CHECK(!has_tokens([](G g, ir::node_id x) { return g.concat({x, x}, 0); }));
  CHECK(!has_tokens([](G g, ir::node_id x) { return g.multiply(x, g.parameter({6, 5})); }));
  CHECK(!has_tokens([](G g, ir::node_id x) { return g.add(x, g.parameter({6, 5})); }));
  CHECK(!has_tokens([](G g, ir::node_id x) { return g.add(g.parameter({6, 5}), x); }));
  CHECK(
      !has_tokens([](G g, ir::node_id x) { return g.einsum("ti,t->ti", {x, g.parameter({6})}); }));
  CHECK(!has_tokens([](G g, ir::node_id) { return g.softmax(g.tensor({6})); }));
  CHECK(!has_tokens([](G g, ir::node_id) { return g.top_k(g.tensor({6}), 2); }));
  CHECK(!has_tokens([](G g, ir::node_id) { return g.parameter({6, 5}); }));
  CHECK(!has_tokens([](G g, ir::node_id) { return g.tensor({}); }));
}

TEST_CASE("sums over tokens leave rows that depend on each other through them alone", "[tokens]") {
  using G = blueprint&;
  CHECK(has_tokens([](G g, ir::node_id x) { return g.einsum("ti->i", {x}); }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.einsum("ti->", {x}); }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.einsum("ti,tj->ij", {x, x}); }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.add(x, g.einsum("si->i", {x})); }));
  CHECK(has_tokens([](G g, ir::node_id x) { return g.softmax(g.einsum("ti->i", {x})); }));
  CHECK(!has_tokens([](G g, ir::node_id x) {
    return g.einsum("ti,ij->j",
                    {x, g.make(ir::mask_node{std::make_shared<std::vector<index_pair>>(), 5, 4})});
  }));
  CHECK(!has_tokens(
      [](G g, ir::node_id x) { return g.einsum("tt->t", {g.einsum("ti,si->ts", {x, x})}); }));
  blueprint g;
  const ir::node_id x = g.tensor({6, 5}), w = g.parameter({5, 4}), dy = g.tensor({6, 4}),
                    sum = g.einsum("ti,to->io", {x, dy}), dx = g.einsum("to,io->ti", {dy, w});
  for (const auto& results : {std::vector{sum, dx}, {dx, sum}, {sum}}) {
    const planner::token_search search(g, ir::node_list(results), false);
    CHECK(*search.axes() == planner::token_axes{0, std::nullopt, 0, std::nullopt, 0});
    CHECK(search.count() == 6);
  }
}

TEST_CASE("axes that must be equal do not make another axis the token's", "[tokens]") {
  using G = blueprint&;
  CHECK(!has_tokens([](G g, ir::node_id) { return g.einsum("aa->a", {g.tensor({5, 5})}); }));
  CHECK(!has_tokens([](G g, ir::node_id) {
    const ir::node_id s = g.tensor({5, 5});
    return g.einsum("ab,bc->ac", {s, s});
  }));
  CHECK(!has_tokens([](G g, ir::node_id) {
    const ir::node_id s = g.tensor({5, 5});
    return g.add(s, g.einsum("ab->ba", {s}));
  }));
}

TEST_CASE("a compiled layer's tokens are those of its arguments alone", "[tokens]") {
  blueprint g;
  const ir::node_id x = g.argument(0, {6, all}), captured = g.tensor({5, 4});
  const ir::node_id y = g.einsum("ti,io->to", {x, captured});
  CHECK(*planner::token_search(g, y, true).axes() == planner::token_axes{0, std::nullopt, 0});
  const ir::node_id added = g.add(y, g.tensor({6, 4}));
  CHECK(!planner::token_search(g, added, true).axes());
  CHECK_THROWS_AS(lowered(g, added, machine_options()), value_error);
  blueprint h;
  const ir::node_id z = h.argument(0, {6, 5}), turned = h.einsum("ti->it", {h.relu(z)});
  CHECK_THROWS_WITH(lowered(h, turned, machine_options()),
                    "[compile] rows of the result depend on other rows of the arguments");
}

}  // namespace
