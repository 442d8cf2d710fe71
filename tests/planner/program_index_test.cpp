// SPDX-License-Identifier: MIT
// What an index tells of random programs is what plain loops find, after every pass. The order of
// operations is sound there, and each makes something that is read.
#include <fmoe/gradients/differentiate.hpp>
#include <fmoe/plan/screen.hpp>
#include <fmoe/plan/stream.hpp>
#include <fmoe/planner/compact.hpp>
#include <fmoe/planner/fuse.hpp>
#include <fmoe/planner/group.hpp>
#include <fmoe/planner/match.hpp>
#include <fmoe/planner/sample.hpp>
#include <fmoe/planner/stages.hpp>

#include "../support/plans.hpp"
#include "../support/random_expression.hpp"
#include "../support/seeds.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using planner::operation;
using planner::value_id;

void check_readers(const planner::program& p, const planner::program_index& index, value_id v) {
  std::vector<extent> readers;
  std::optional<extent> maker;
  for (extent k = 0; k < p.operations.size(); ++k) {
    for (int n = p.reads(p.operations[k], v); n > 0; --n) readers.push_back(k);
    if (p.operations[k].out.value == v) maker = k;
  }
  const bool is_result = std::ranges::count(p.results, v) > 0;
  CHECK(std::ranges::equal(index.readers(v), readers));
  CHECK(index.uses(v) == readers.size() + is_result);
  CHECK(index.is_result(v) == is_result);
  CHECK(index.producer(v) == maker);
}

void check_index(const planner::program& p) {
  for (const operation& o : p.operations) REQUIRE(p.values.contains(o.out.value));  // it is no gap
  const planner::program_index index(p);
  for (const value_id v : p.values.ids()) check_readers(p, index, v);
  extent stage = 0;
  list_by<value_id, bool> made(p.values.size(), false);
  for (extent k = 0; k < p.operations.size(); ++k) {
    const operation& o = p.operations[k];
    CHECK(index.stage(k) == stage);
    stage += p.runs_per_call(o);
    each_read(o, [&](value_id v) { CHECK(made[v] == index.producer(v).has_value()); });
    CHECK(!made[o.out.value]);
    made[o.out.value] = true;
    CHECK(index.uses(o.out.value) > 0);
  }
}

void check_passes(const ir::graph& g, const ir::node_list& results) {
  planner::plan_options how = tiny_options();
  how.on.sampled = 2;
  how.kernels.samples_kept = how.kernels.compacts = true;
  how.kernels.screen_size = [](extent, extent, extent, extent) { return extent{64}; };
  planner::program p = lowered(g, results, how);
  check_index(p);
  const auto after = [&](const char* name, const auto& pass) {
    INFO(name);
    pass();
    check_index(p);
  };
  const auto after_all = [&](const char* name, const auto& pass) {
    after(name, pass);
    const lines once = describe(p);
    after(name, pass);
    CHECK(describe(p) == once);  // it has left nothing to do
  };
  after_all("sample", [&] { sample(p, how.on, how.kernels); });
  after_all("compact", [&] { compact(p, how.on); });
  after_all("group", [&] { group(p); });
  after("reweigh", [&] { reweigh(p); });
  after("skip", [&] { skip(p, how.on, how.kernels); });
  after("match", [&] { match(p); });
  after("stages", [&] { arrange_stages(p); });
  after("fuse", [&] { fuse(p); });
  after("screen", [&] { plan::screen(p, how, 30); });
  after("gather_loops", [&] { plan::gather_loops(p, how); });
}

// Layers of several kinds one after the other, which also read what earlier ones made.
ir::node_id random_layers(blueprint& g, std::mt19937& bits, ir::node_id x) {
  constexpr extent d = 8, experts = 64, many = 4096;
  std::vector<ir::node_id> made{x};
  for (int layer = 0; layer < 8; ++layer) {
    const ir::node_id y = made.back(), z = made[bits() % made.size()];
    const auto sum_of_rows = [&](ir::node_id chosen, extent n) {
      return g.einsum("tn,no->to", {chosen, g.parameter({n, d})});
    };
    const auto next = [&] {
      switch (bits() % 8) {
        case 0: return g.add(g.relu(g.linear(y, d, d)), g.linear(z, d, d));
        case 1: return g.softmax(g.multiply(y, z));
        case 2: return g.einsum("ti,ij,tj->tj", {y, g.parameter({d, d}), z});
        case 3: return g.linear(g.relu(g.linear(y, d, 300)), 300, d);
        case 4: return g.einsum("ti,io->to", {g.make(ir::append_node{y}), g.parameter({d + 1, d})});
        case 5: {  // a group
          const ir::node_id h = g.relu(g.einsum("ti,nih->tnh", {z, g.parameter({experts, d, 3})})),
                            a = g.top_k(g.linear(y, d, experts), 2);
          return g.einsum("tn,tnh,nho->to", {a, h, g.parameter({experts, 3, d})});
        }
        case 6: {  // a sample
          const ir::node_id a = g.top_k(g.linear(y, d, experts), 2);
          return sum_of_rows(g.einsum("tn,tn->tn", {a, g.relu(g.linear(z, d, experts))}), experts);
        }
        default: {  // a screen
          const ir::node_id wide = g.concat({y, z, y, z, y, z, y, z}, 1);
          return sum_of_rows(g.top_k(g.linear(wide, 8 * d, many), 4), many);
        }
      }
    };
    made.push_back(next());
  }
  return made.back();
}

TEST_CASE("an index is what plain loops find, after every pass of random expressions",
          "[planner]") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const random_expression e(seed);
    check_passes(e.g, e.root());
  }
}

TEST_CASE("an index is what plain loops find, after every pass of layers and their gradients",
          "[planner]") {
  for (unsigned seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 bits(seed);
    blueprint g;
    const ir::node_id x = g.argument(0, {30, 8}), y = random_layers(g, bits, x);
    detail::vector<ir::node_id> results{y};
    if (seed % 2 == 1) {
      detail::vector<ir::node_id> leaves;
      for (const ir::node_id id : g.ids())
        if (holds_alternative<ir::leaf_node>(g[id].op)) leaves.push_back(id);
      const ir::node_id dy = g.argument(1, {30, 8});
      for (const auto& made : detail::differentiate(g, {y}, {dy}, leaves))
        if (made) results.push_back(*made);
    }
    check_passes(g, ir::node_list(std::move(results)));
  }
}

}  // namespace
