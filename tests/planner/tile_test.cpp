// SPDX-License-Identifier: MIT
#include <fmoe/backend/cpu/plan/tile.hpp>
#include <fmoe/planner/fuse.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

cpu::tiling tiled(blueprint& g, ir::node_id y, extent tokens, const planner::plan_options& o) {
  planner::program p = make_program(g, y, o);
  fuse(p);
  return cpu::choose_tile(p, o, tokens);
}

// x[t, width] goes through one product, whose result is as wide.
extent tile_of(extent width, extent tokens = 1000, planner::plan_options o = machine_options()) {
  blueprint g;
  return tiled(g, g.linear(g.tensor({tokens, width}), width, width), tokens, o).tile;
}

TEST_CASE("a call has tiles for all threads where these stay large enough", "[plan][tile]") {
  cpu::plan p;
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

TEST_CASE("the tile is the largest of 96, 84, ... that stays resident", "[tile]") {
  CHECK(tile_of(64) == 96);
  const extent bytes = machine_options().on.resident;
  for (const extent tile :
       {extent{96}, extent{84}, extent{72}, extent{60}, extent{48}, extent{36}, extent{24}}) {
    const extent most = bytes / (2 * 4 * tile);  // the width of one row in and one out
    CHECK(tile_of(most) == tile);
    CHECK(tile_of(most + 1) == tile - 12);
  }
  CHECK(tile_of(1 << 20) == 12);  // at least 12
}

TEST_CASE("few tokens make a small tile, and none a tile of one", "[tile]") {
  for (const extent tokens : {extent{1}, extent{5}, extent{95}, extent{96}})
    CHECK(tile_of(64, tokens) == tokens);
  CHECK(tile_of(64, 97) == 96);
  CHECK(tile_of(64, 0) == 1);
  CHECK(tile_of(1 << 20, 5) == 5);
  CHECK(tile_of(64, 1000, tiny_options()) == 24);
  auto odd = machine_options();
  odd.on.tile = 7;
  CHECK(tile_of(64, 1000, odd) == 7);
}

TEST_CASE("double halves what fits", "[tile]") {
  auto o = machine_options();
  o.element_bytes = 8;
  const extent most = machine_options().on.resident / (2 * 8 * 96);
  CHECK(tile_of(most, 1000, o) == 96);
  CHECK(tile_of(most + 1, 1000, o) == 84);
}

TEST_CASE("temporaries count, and streaming is decided for the tile", "[tile]") {
  blueprint g;
  const auto t = tiled(g, mxd_graph(g, 1000, 768, 3072, 21490, 768, 32), 1000, machine_options());
  CHECK(t.tile == 96);
  CHECK(t.loops.size() == 2);
  CHECK((t.places.arena + 2 * 768 * 96) * 4 <= machine_options().on.resident);
  blueprint h;
  const auto few = tiled(h, mxd_graph(h, 16, 768, 3072, 21490, 768, 32), 16, machine_options());
  CHECK(few.tile == 16);
  CHECK(few.loops.size() == 1);  // h of 16 tokens is small enough
}

TEST_CASE("an expression without tokens is one row", "[tile]") {
  blueprint g;
  const ir::node_id y = g.einsum("ti->it", {g.relu(g.tensor({1000, 768}))});
  const cpu::plan p = make_plan(g, y, 768, machine_options());
  CHECK(!p.tokens);
  CHECK(p.tile == 1);
  CHECK(p.arena < 2 * 1000 * 768);
}

}  // namespace
