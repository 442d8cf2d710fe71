// SPDX-License-Identifier: MIT
// Tile: how many tokens one task takes through the whole plan, and what then lies where.
#pragma once

#include <cmath>

#include <fmoe/plan/place.hpp>

namespace fmoe::plan {

struct tiling {
  extent tile, least;  // the tile is not made smaller than `least` for another thread
  vector<stream_loop> loops;
  placement places;
};

// Returns the rows with which the arithmetic of a float weight takes twice as long as to read it
// from memory. Fewer rows would read the weights too often for what they compute.
inline extent least_rows(const machine& m) {
  return static_cast<extent>(std::ceil(4 * m.every.flops / m.every.memory));
}

inline tiling tiling_of(const planner::program& p, const planner::plan_options& o, extent tokens) {
  tiling t{std::max<extent>(1, std::min(o.shape.tile, tokens)), least_rows(o.on), {}, {}};
  for (const planner::expert_group& g : p.groups) {
    // So many rows for each expert, unless threads share the experts of one tile.
    const extent rows = shares_group(p, o, g, t.tile) ? least_rows(o.on) : o.on.kernel_rows;
    t.least = std::max(t.least, rows * g.experts / std::max<extent>(1, g.expected));
  }
  t.loops = streams(p, o, t.tile);
  t.places = placed(p, o, t.loops, t.tile);
  return t;
}

}  // namespace fmoe::plan
