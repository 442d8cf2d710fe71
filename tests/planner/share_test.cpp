// SPDX-License-Identifier: MIT
// Which rows of a plan's steps several threads share.
#include <fmoe/backend/cpu/schedule/choose.hpp>
#include <fmoe/planner/planner.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

machine machine_of(double flops, double together) {
  machine m = machine_options().on;
  m.one = {flops, 2 * flops, 4 * flops, flops, flops, flops, flops / 20};
  m.every = m.one;
  for (double* rate :
       {&m.every.flops, &m.every.int16_dots, &m.every.l2, &m.every.l3, &m.every.memory})
    *rate *= together;
  return m;
}

// Rows of several lengths, of which the later ones lie where earlier ones lay.
ir::node_id rows_of_many_lengths(blueprint& g, extent tokens) {
  const ir::node_id x = g.tensor({tokens, 64});
  const ir::node_id a = g.softmax(g.einsum("ti,iab->tab", {x, g.parameter({64, 16, 32})}));
  const ir::node_id b = g.softmax(g.einsum("tab->ta", {a})),
                    c = g.softmax(g.einsum("tab->tb", {a}));
  const ir::node_id d = g.softmax(g.einsum("ta,tb->tba", {b, c}));
  return g.softmax(g.einsum("tba->ta", {d}));
}

ir::node_id rows_between_products(blueprint& g, extent tokens) {
  const ir::node_id x = g.tensor({tokens, 64});
  const ir::node_id a = g.softmax(g.linear(x, 64, 512));
  const ir::node_id b = g.softmax(g.top_k(g.linear(a, 512, 2048), 8));
  return g.linear(g.softmax(b), 2048, 64);
}

plan::step_plan plan_for(const machine& on, extent threads, extent tokens = 16,
                         ir::node_id (*build)(blueprint&, extent) = rows_between_products) {
  blueprint g;
  planner::plan_options how = machine_options();
  how.on = on;
  how.threads = threads;
  planner::program p = planner::lower(g, build(g, tokens), how);
  return cpu::shape_search(p, how).with({.tile = tokens});
}

extent steps_in(const detail::vector<plan::row_range>& shared) {
  extent n = 0;
  for (const plan::row_range& r : shared) n += r.end - r.first;
  return n;
}

TEST_CASE("threads share the rows of all steps but products where that pays", "[share]") {
  const plan::step_plan slow = plan_for(machine_of(1e6, 2), 2);
  const auto products = std::ranges::count_if(
      slow.steps, [](const plan::step& s) { return holds_alternative<plan::gemm_step>(s); });
  CHECK(products == 3);
  CHECK(steps_in(slow.shared) + 3 == slow.steps.size());
  for (const plan::row_range& r : slow.shared) CHECK(r.least == 1);
  CHECK(plan_for(machine_of(1e6, 2), 1).shared.empty());
  CHECK(plan_for(machine_of(1e6, 1), 2).shared.empty());   // together they are no quicker
  CHECK(plan_for(machine_of(1e15, 2), 2).shared.empty());  // all is done before they are told
  CHECK(plan_for(machine_of(1e6, 2), 2, 1).shared.empty());
}

TEST_CASE("what a weight takes beside other threads is that of the machine", "[share]") {
  const plan::step_plan alone = plan_for(machine_of(1e9, 2), 2),
                        shared = plan_for(machine_of(1e9, 1), 2);
  CHECK(alone.multiply_add_seconds == 2 / 1e9);
  CHECK(shared.multiply_add_seconds == 2 * alone.multiply_add_seconds);
  CHECK(alone.read_seconds >= 4 / 1e9);
  CHECK(shared.read_seconds == 2 * alone.read_seconds);
}

TEST_CASE("the quicker the machine, the more rows a thread takes", "[share]") {
  const plan::step_plan quick = plan_for(machine_of(20e9, 2), 2);
  REQUIRE(!quick.shared.empty());
  for (const plan::row_range& r : quick.shared) {
    CHECK(r.least > 1);
    CHECK(r.parts(1, 2) == 1);
    CHECK(r.parts(2 * r.least, 2) == 2);
    CHECK(r.parts(100 * r.least, 3) == 12);
    CHECK(r.parts(100 * r.least, 1) == 1);
  }
}

TEST_CASE("no step that is run ahead writes over rows that a step behind reads", "[share]") {
  const plan::step_plan plan = plan_for(machine_of(1e6, 2), 2, 16, rows_of_many_lengths);
  CHECK(steps_in(plan.shared) + 1 == plan.steps.size());
  for (const plan::row_range& r : plan.shared) {
    detail::vector<plan::storage_row> used;
    for (extent i = r.first; i < r.end; ++i)
      for (const plan::access& a : accesses(plan, plan.steps[i]))
        if (plan.storages[a.where.storage].where == plan::storage_row::kind::arena)
          used.push_back(plan.storages[a.where.storage]);
    for (const auto& a : used)
      for (const auto& b : used) {
        const bool apart = a.offset + plan.tile * a.stride <= b.offset ||
                           b.offset + plan.tile * b.stride <= a.offset;
        CHECK((apart || (a.offset == b.offset && a.stride == b.stride)));
      }
  }
}

TEST_CASE("a plan of several threads is predicted with the rows that they share", "[share]") {
  const auto seconds = [](const plan::step_plan& p, extent threads) {
    blueprint g;
    planner::plan_options how = machine_options();
    const planner::program q = planner::lower(g, rows_between_products(g, 16), how);
    return cpu::prediction(p, q.leaves, machine_of(1e6, 2), 4, threads).seconds();
  };
  const plan::step_plan plan = plan_for(machine_of(1e6, 2), 2);
  CHECK(seconds(plan, 2) < 0.51 * seconds(plan, 1));
  plan::step_plan unshared = plan;
  unshared.shared.clear();
  CHECK(seconds(unshared, 2) > 1.01 * seconds(plan, 2));
}

}  // namespace
