// SPDX-License-Identifier: MIT
#include <fmoe/plan/screen.hpp>
#include <fmoe/planner/fuse.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using G = blueprint&;

planner::plan_options able() {
  planner::plan_options o = machine_options();
  o.kernels.screen_size = [](extent depth, extent, extent keep, extent) {
    return depth + 7 * keep;
  };
  return o;
}

// Returns how many operations of the program that `build` makes of x[tokens, 96] are screened.
template <class Build>
int screened(Build build, planner::plan_options options = able(), extent tokens = 96) {
  blueprint g;
  const ir::node_id y = build(g, g.tensor({tokens, 96}));
  planner::program p = make_program(g, y, options);
  fuse(p);
  plan::screen(p, options, tokens);
  return static_cast<int>(std::ranges::count_if(
      p.operations, [](const planner::operation& o) { return is<planner::screen_op>(o); }));
}

ir::node_id scores(G g, ir::node_id x, extent n = 2048) {
  return g.relu(g.add(g.linear(x, 96, n), g.parameter({n})));
}
ir::node_id chosen(G g, ir::node_id x) { return g.top_k(scores(g, x), 8); }

TEST_CASE("top-k of many products with a parameter is screened", "[screen]") {
  CHECK(screened(chosen) == 1);
  CHECK(screened([](G g, ir::node_id x) { return g.top_k(g.linear(x, 96, 2048), 8); }) == 1);
  blueprint g;
  const ir::node_id y = mxd_graph(g, 30, 768, 3072, 21490, 768, 32);
  planner::program p = make_program(g, y, able());
  fuse(p);
  plan::screen(p, able(), 30);
  const auto all = describe(p);
  CHECK(std::ranges::count_if(all, [](const std::string& s) { return s.starts_with("screen"); }) ==
        1);
  CHECK(std::ranges::count_if(all, [](const std::string& s) { return s.starts_with("select"); }) ==
        0);
}

TEST_CASE(
    "where it would not pay, or the machine or the user does not want it, nothing is screened",
    "[screen]") {
  CHECK(screened([](G g, ir::node_id x) { return g.top_k(scores(g, x, 1000), 8); }) == 0);
  CHECK(screened([](G g, ir::node_id x) { return g.top_k(scores(g, x), 33); }) == 0);
  CHECK(screened([](G g, ir::node_id x) { return g.top_k(scores(g, x), 32); }) == 1);
  CHECK(screened(chosen, machine_options()) == 0);
  planner::plan_options off = able();
  off.shape.screen = false;
  CHECK(screened(chosen, off) == 0);
  off = able();
  off.naive = true;
  CHECK(screened(chosen, off) == 0);
}

TEST_CASE("scores that someone else reads, or that no bound passes through, are made in full",
          "[screen]") {
  CHECK(screened([](G g, ir::node_id x) {
          const ir::node_id s = scores(g, x);
          return g.add(g.top_k(s, 8), s);
        }) == 0);
  CHECK(screened([](G g, ir::node_id x) {
          return g.top_k(g.map(pointwise::gelu, 0, g.linear(x, 96, 2048)), 8);
        }) == 0);
  CHECK(screened([](G g, ir::node_id x) {
          return g.top_k(g.multiply(g.linear(x, 96, 2048), g.parameter({2048})), 8);
        }) == 0);
  CHECK(screened([](G g, ir::node_id x) {
          return g.top_k(g.add(g.linear(x, 96, 2048), g.tensor({96, 2048})), 8);
        }) == 0);
  CHECK(screened([](G g, ir::node_id x) {
          selection_rule r{selection_rule::kind::top_k, 8};
          r.weights = weighting::softmax_of_all;
          return g.select(r, g.linear(x, 96, 2048));
        }) == 0);
}

}  // namespace
