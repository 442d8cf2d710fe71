// SPDX-License-Identifier: MIT
// The times that are predicted for the steps of plans.
#include <fmoe/backend/cpu/schedule/choose.hpp>
#include <fmoe/planner/planner.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

struct predicted {
  lines steps;
  std::vector<double> seconds;
  double all;
};

predicted predict(const blueprint& g, ir::node_id y, const machine& on = machine_options().on) {
  planner::plan_options how = machine_options();
  how.on = on;
  const planner::program p = planner::lower(g, y, how);
  const plan::step_plan plan = cpu::shape_search(p, how).with({});
  const cpu::prediction times(plan, p.leaves, how.on, 4, 1);
  const auto& each = times.of_steps();
  return {describe(plan), {each.begin(), each.end()}, times.seconds()};
}

// A product, the sum of its rows over the tokens, and a product of the same size again.
predicted centred(extent tokens) {
  blueprint g;
  const ir::node_id h = g.linear(g.argument(0, {tokens, 48}), 48, 48),
                    sum = g.map(pointwise::scale, -0.1, g.einsum("to->o", {h}));
  return predict(g, g.linear(g.add(h, sum), 48, 48));
}

TEST_CASE("what a call does once does not count by tiles, and what follows it does", "[predict]") {
  const predicted few = centred(960), many = centred(1920);
  REQUIRE(few.steps == lines{"gemm ti,io->to", "token_sum to->o", "pointwise o->o | scale",
                             "pointwise to->to | +", "gemm ti,io->to"});
  CHECK(few.seconds[4] == few.seconds[0]);
  CHECK(many.seconds[0] == 2 * few.seconds[0]);
  CHECK(many.seconds[1] == 2 * few.seconds[1]);
  CHECK(many.seconds[2] == few.seconds[2]);  // one row, however high a tile is
  CHECK(centred(1000).seconds[2] == few.seconds[2]);
  CHECK(many.seconds[3] == 2 * few.seconds[3]);
  double sum = 0;
  for (const double s : few.seconds) sum += s;
  CHECK(few.all == Approx(sum));
}

// The times of a mixture of experts of 2 MB, of which each token chooses two.
predicted mixture(extent tokens, extent experts, const machine& on) {
  blueprint g;
  const ir::node_id x = g.tensor({tokens, 256}), chosen = g.top_k(g.linear(x, 256, experts), 2),
                    made = g.relu(g.einsum("ti,niw->tnw", {x, g.parameter({experts, 256, 1024})}));
  predicted p =
      predict(g, g.einsum("tn,tnw,nwo->to", {chosen, made, g.parameter({experts, 1024, 256})}), on);
  REQUIRE(p.steps.at(2) == "group to,tn->to 2 of " + std::to_string(experts));
  return p;
}
double group_seconds(extent tokens, extent experts, const machine& on) {
  return mixture(tokens, experts, on).seconds.at(2);
}

TEST_CASE("a group takes the time of the experts that some token selects", "[predict]") {
  machine m = machine_options().on;
  m.l3 = 64 << 20;  // where the experts of one token lie, and not those of all
  CHECK(group_seconds(1, 64, m) == Approx(group_seconds(1, 8, m)));

  m.l3 = m.l2;
  m.one.memory = m.every.memory = 1e8;  // the reads take all of the time
  const auto busy = [](double experts, double tokens) {
    return experts * (1 - std::pow(1 - 2 / experts, tokens));
  };
  for (const extent tokens : {extent{4}, extent{32}, extent{90}})
    CHECK(group_seconds(tokens, 64, m) / group_seconds(1, 64, m) ==
          Approx(busy(64, static_cast<double>(tokens)) / 2).epsilon(0.05));
}

// The share of the time of a loop or a group that the steps of its body have.
double share_of_body(const predicted& p, extent step) {
  double body = 0;
  for (extent i = step + 1; i < p.steps.size() && p.steps[i].starts_with("  "); ++i)
    body += p.seconds[i];
  return body / p.seconds[step];
}

TEST_CASE("the steps of a body have the time of all its runs", "[predict]") {
  for (const extent tokens : {extent{90}, extent{960}}) {
    CHECK(share_of_body(mixture(tokens, 8, machine_options().on), 2) == Approx(1).epsilon(0.01));
    blueprint g;
    const predicted p = predict(g, mxd_graph(g, tokens, 768, 3072, 21490, 768, 32));
    REQUIRE(p.steps.at(3) == "loop h 3072 by 768");
    CHECK(share_of_body(p, 0) == Approx(1));
    CHECK(share_of_body(p, 3) < 1);  // a loop also reads and writes its sums
    CHECK(share_of_body(p, 3) > 0.95);
  }
}

// The time of a selection out of n scores, or by product keys out of n^2.
double selection_seconds(extent n, extent candidates) {
  blueprint g;
  using enum selection_rule::kind;
  const bool by_keys = candidates != 0;
  const ir::node_id scores =
      by_keys ? g.einsum("ti,ihs->ths", {g.tensor({64, 32}), g.parameter({32, 2, n})})
              : g.linear(g.tensor({64, 32}), 32, n);
  const ir::node_id chosen =
      g.select({by_keys ? product_top_k : top_k, 16, 0, weighting::score, 0, candidates}, scores);
  const predicted p = predict(g, by_keys ? g.einsum("te,eo->to", {chosen, g.parameter({n * n, 32})})
                                         : g.einsum("te,eo->to", {chosen, g.parameter({n, 32})}));
  for (extent i = 0; i < p.steps.size(); ++i)
    if (p.steps[i].find("top_k") != std::string::npos) return p.seconds[i];
  return 0;
}

// The seconds of one product of rows of 2 MB, whose panels have 64 KB, with so many bytes of L2.
double seconds_of_product(extent l2) {
  blueprint g;
  planner::plan_options how = machine_options();
  how.on.l2 = l2;
  how.on.l3 = 64 << 20;
  const planner::program p = planner::lower(g, g.linear(g.argument(0, {1024, 512}), 512, 512), how);
  const plan::step_plan plan = cpu::shape_search(p, how).with({.tile = 1024});
  return cpu::prediction(plan, p.leaves, how.on, 4, 1).seconds();
}

TEST_CASE("rows that leave L2 are read once for the panels that half of L2 holds", "[predict]") {
  const double alone = seconds_of_product(100 << 10), two = seconds_of_product(256 << 10),
               four = seconds_of_product(512 << 10);
  CHECK(alone > two);
  CHECK(alone - four == Approx(1.5 * (alone - two)));
}

TEST_CASE("a selection takes its time for each of its lists, however short they are", "[predict]") {
  CHECK(selection_seconds(32, 0) > 0.5 * selection_seconds(2048, 0));
  CHECK(selection_seconds(32, 16) > 3 * selection_seconds(32, 0));
  CHECK(selection_seconds(20'000, 0) > 5 * selection_seconds(32, 0));
}

}  // namespace
