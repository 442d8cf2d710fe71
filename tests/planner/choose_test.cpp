// SPDX-License-Identifier: MIT
// The shapes that the planner chooses for machines that are given as values.
#include <fmoe/backend/cpu/tune.hpp>
#include <fmoe/planner/fuse.hpp>
#include <fmoe/planner/planner.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// One core of a Zen 4, of a Zen 5, and of an Emerald Rapids.
machine zen4() {
  machine m = machine_options().on;
  m.one = m.every = {118e9, 235e9, 470e9, 235e9, 120e9, 78e9, 32e9};
  m.l2 = 1 << 20;
  m.l3 = 32 << 20;
  return m;
}
machine zen5() {
  machine m = zen4();
  m.one = m.every = {267e9, 533e9, 1060e9, 458e9, 220e9, 113e9, 44e9};
  return m;
}
machine emerald_rapids() {
  machine m = zen4();
  m.one = m.every = {175e9, 350e9, 700e9, 90e9, 110e9, 28e9, 16e9};
  m.l2 = 2 << 20;
  m.l3 = 260 << 20;
  return m;
}

planner::plan_options options_on(const machine& on) {
  planner::plan_options how = machine_options();
  how.on = on;
  how.kernels.screen_size = [](extent depth, extent, extent keep, extent) {
    return depth + 7 * keep;
  };
  return how;
}

detail::vector<cpu::shaped_plan> tried(const auto& build, extent tokens, const machine& on) {
  blueprint g;
  const planner::plan_options how = options_on(on);
  planner::program p = planner::lower(g, build(g, tokens), how);
  return cpu::shape_search(p, how).all();
}
plan_shape chosen(const auto& build, extent tokens, const machine& on) {
  return tried(build, tokens, on).front().shape;
}

ir::node_id product(blueprint& g, extent tokens) {
  return g.linear(g.tensor({tokens, 2048}), 2048, 8192);
}
ir::node_id mxd_of_gpt2(blueprint& g, extent tokens) {
  return mxd_graph(g, tokens, 768, 3072, 21490, 768, 32);
}

TEST_CASE("few tokens are one tile, and many are even parts", "[choose]") {
  for (const machine& m : {zen4(), zen5(), emerald_rapids()}) {
    for (const extent tokens : {extent{1}, extent{16}, extent{100}, extent{128}, extent{192}})
      CHECK(chosen(product, tokens, m).tile == tokens);
    const extent tile = chosen(product, 1000, m).tile;
    CHECK(tile >= 96);
    CHECK(tile == divide_up(extent{1000}, divide_up(extent{1000}, tile)));
  }
}

double seconds(extent tile, const machine& on, extent threads = 1) {
  blueprint g;
  const planner::plan_options how = options_on(on);
  const planner::program p = planner::lower(g, mxd_of_gpt2(g, 1024), how);
  const plan::step_plan plan = cpu::shape_search(p, how).with({.tile = tile});
  return cpu::prediction(plan, p.leaves, on, 4, threads).seconds();
}

TEST_CASE("the slower memory is, the more a larger tile saves", "[choose]") {
  machine slow = zen4();
  slow.one.memory = slow.every.memory = 4e9;
  const auto saved = [](const machine& m) { return seconds(64, m) / seconds(256, m); };
  CHECK(saved(slow) > 1.2 * saved(zen4()));
  CHECK(saved(zen4()) > 1);
}

TEST_CASE("a selection is screened where the rate of integer products pays for it", "[choose]") {
  for (const machine& m : {zen4(), zen5(), emerald_rapids()})
    for (const extent tokens : {extent{1}, extent{16}, extent{128}})
      CHECK(chosen(mxd_of_gpt2, tokens, m).screen);
  machine half = emerald_rapids();
  half.one.int16_dots = half.every.int16_dots = half.one.flops / 2;
  CHECK(!chosen(mxd_of_gpt2, 128, half).screen);
  CHECK(chosen(mxd_of_gpt2, 1, half).screen);  // half of the bytes
}

TEST_CASE("plans that were tried are in the order of their times", "[choose]") {
  const auto all = tried(mxd_of_gpt2, 1024, emerald_rapids());
  CHECK(all.size() > 5);
  CHECK(std::ranges::is_sorted(all, {}, &cpu::shaped_plan::seconds));
  CHECK(all.front().seconds > 0.05);
  CHECK(all.front().seconds < 0.5);
}

TEST_CASE("a shape is tried once", "[choose]") {
  const auto mixture = [](blueprint& g, extent tokens) {
    const ir::node_id x = g.tensor({tokens, 768}), chosen = g.top_k(g.linear(x, 768, 8), 2),
                      made = g.relu(g.einsum("ti,niw->tnw", {x, g.parameter({8, 768, 3072})}));
    return g.einsum("tn,tnw,nwo->to", {chosen, made, g.parameter({8, 3072, 768})});
  };
  const auto are_different = [](const detail::vector<cpu::shaped_plan>& all) {
    return std::ranges::all_of(all, [&](const cpu::shaped_plan& s) {
      return std::ranges::count_if(all, [&](const cpu::shaped_plan& other) {
               return describe(other.made) == describe(s.made) && other.made.tile == s.made.tile &&
                      other.made.arena == s.made.arena;
             }) == 1;
    });
  };
  // 960 tokens have a tile of 96, with which the search begins, among their even parts.
  for (const extent tokens : {extent{128}, extent{960}, extent{1024}})
    CHECK(are_different(tried(mxd_of_gpt2, tokens, emerald_rapids())));
  CHECK(are_different(tried(mixture, 128, emerald_rapids())));
  const auto all = tried(mixture, 128, emerald_rapids());
  CHECK(std::ranges::count(all, extent{128}, [](const auto& s) { return s.shape.group_rows; }) ==
        1);
}

// The time that only runs of plans take.
struct clock_of_plans {
  using duration = std::chrono::milliseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<clock_of_plans>;
  static inline time_point at{};
  static time_point now() { return at; }
};

struct run_of_plan {  // which takes so long
  std::chrono::milliseconds time;
  void run(const call_arrays&) const { clock_of_plans::at += time; }
};

TEST_CASE("tuning finds the quickest tile, and how far ahead weights are fetched", "[choose]") {
  blueprint g;
  const planner::plan_options how = options_on(emerald_rapids());
  const planner::program p = planner::lower(g, g.linear(g.argument(0, {1024, 512}), 512, 512), how);
  std::vector<extent> tiles;
  for (const cpu::shaped_plan& s : cpu::shape_search(p, how).all()) tiles.push_back(s.shape.tile);
  REQUIRE(tiles.size() > 3);
  for (const extent tile : {tiles[0], tiles[2]})
    for (const auto& read : std::initializer_list<std::pair<extent, extent>>{
             {0, 4}, {2048, 4}, {4096, 4}, {2048, 1}, {2048, 2}}) {
      const plan_shape found =
          cpu::tuned<float, clock_of_plans>(p, how, [&](const plan::step_plan& made) {
            const bool is_best = made.tile == tile,
                       is_read_well = std::pair(made.own_ahead, made.side_by_side) == read;
            return std::optional(
                run_of_plan{std::chrono::milliseconds(5 - 2 * is_best - is_read_well)});
          });
      CHECK(found.tile == tile);
      CHECK(std::pair(found.own_ahead, found.side_by_side) == read);
    }
}

TEST_CASE("more threads take less time, and never less than their part", "[choose]") {
  machine two = zen4();
  two.threads = 2;
  two.every = {236e9, 470e9, 940e9, 470e9, 240e9, 156e9, 40e9};
  CHECK(seconds(128, two, 2) < 0.8 * seconds(128, two, 1));
  CHECK(seconds(128, two, 2) >= 0.5 * seconds(128, two, 1));
}

TEST_CASE("entmax by bisection is predicted from its alpha and the length of its rows",
          "[choose]") {
  const auto seconds_of = [](double alpha, extent n) {
    blueprint g;
    planner::plan_options how = options_on(zen4());
    how.on.one.flops = how.on.every.flops = 240e9;
    const ir::node_id y = g.map_rows(row_function::entmax, alpha, g.tensor({100, n}));
    const planner::program p = planner::lower(g, y, how);
    const plan::step_plan plan = cpu::shape_search(p, how).with({});
    return cpu::prediction(plan, p.leaves, how.on, 4, 1).seconds() / static_cast<double>(100 * n);
  };
  // The nanoseconds of an element of normal scores on a core of this rate.
  struct measured {
    double alpha;
    extent n;
    double ns;
  };
  for (const measured& m : std::initializer_list<measured>{{1.1, 128, 983},
                                                           {1.1, 4096, 944},
                                                           {1.25, 128, 599},
                                                           {1.25, 512, 338},
                                                           {1.75, 512, 67},
                                                           {1.75, 4096, 47},
                                                           {3, 128, 75},
                                                           {3, 4096, 43},
                                                           {1.5, 512, 0.86},
                                                           {2, 512, 0.63}}) {
    INFO("alpha " << m.alpha << ", n " << m.n << ": " << seconds_of(m.alpha, m.n) * 1e9);
    CHECK(seconds_of(m.alpha, m.n) * 1e9 > m.ns / 1.7);
    CHECK(seconds_of(m.alpha, m.n) * 1e9 < m.ns * 1.7);
  }
}

TEST_CASE("every printed step has a time, and a loop has that of its body", "[choose]") {
  blueprint g;
  planner::plan_options how = machine_options();
  const planner::program p = planner::lower(g, mxd_of_gpt2(g, 128), how);
  const plan::step_plan plan = cpu::shape_search(p, how).with({});
  const cpu::prediction times(plan, p.leaves, how.on, 4, 1);
  CHECK(std::ranges::all_of(times.of_steps(), [](double s) { return s > 0; }));
  CHECK(times.of_steps().size() == describe(plan).size());
}

}  // namespace
