// SPDX-License-Identifier: MIT
#include <fmoe/plan/tile.hpp>
#include <fmoe/planner/fuse.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEST_CASE("a call has tiles for all threads where these stay large enough", "[plan][tile]") {
  plan::step_plan p;
  p.tile = 96;
  p.least_tile = 24;
  CHECK(cpu::tile_count(p, 10, 2) == 1);
  CHECK(cpu::tile_count(p, 47, 2) == 1);
  CHECK(cpu::tile_count(p, 48, 2) == 2);
  CHECK(cpu::tile_count(p, 96, 2) == 2);
  CHECK(cpu::tile_count(p, 1000, 2) == 12);
  CHECK(cpu::tile_count(p, 1000, 1) == 11);
  p.tile = 512;
  p.least_tile = 256;
  CHECK(cpu::tile_count(p, 128, 2) == 1);
  CHECK(cpu::tile_count(p, 511, 2) == 1);
  CHECK(cpu::tile_count(p, 512, 2) == 2);
}

TEST_CASE("the tile is that of the shape, or all tokens", "[tile]") {
  const auto tile_of = [](extent tokens, extent tile) {
    blueprint g;
    planner::plan_options o = machine_options();
    o.shape.tile = tile;
    return make_plan(g, g.linear(g.tensor({tokens, 64}), 64, 64), tokens, o).tile;
  };
  for (const extent tokens : {extent{1}, extent{5}, extent{95}, extent{96}})
    CHECK(tile_of(tokens, 96) == tokens);
  CHECK(tile_of(97, 96) == 96);
  CHECK(tile_of(0, 96) == 1);
  CHECK(tile_of(1000, 7) == 7);
}

TEST_CASE("streaming is decided for the tile", "[tile]") {
  const auto loops = [](extent tokens) {
    blueprint g;
    planner::program p =
        make_program(g, mxd_graph(g, tokens, 768, 3072, 21490, 768, 32), machine_options());
    fuse(p);
    return plan::tiling_of(p, machine_options(), tokens).loops.size();
  };
  CHECK(loops(1000) == 2);
  CHECK(loops(16) == 1);  // h of 16 tokens is small enough
}

TEST_CASE("a smaller tile would read the weights more often than it computes", "[tile]") {
  machine m;
  m.every = {200e9, 0, 0, 0, 0, 0, 20e9};
  CHECK(cpu::least_rows(m) == 40);
}

TEST_CASE("an expression without tokens is one row", "[tile]") {
  blueprint g;
  const ir::node_id y = g.einsum("ti->it", {g.relu(g.tensor({1000, 768}))});
  const plan::step_plan p = make_plan(g, y, 768, machine_options());
  CHECK(!p.tokens);
  CHECK(p.tile == 1);
  CHECK(p.arena < 2 * 1000 * 768);
}

}  // namespace
