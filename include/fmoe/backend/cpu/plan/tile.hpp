// SPDX-License-Identifier: MIT
// Tile: chooses how many tokens one task takes through the whole plan. A larger tile reads the
// weights less often, a smaller one keeps every intermediate in L2.
#pragma once

#include <fmoe/backend/cpu/plan/place.hpp>

namespace fmoe::cpu {

struct tiling {
  extent tile, least;  // the tile is not made smaller than `least` for another thread
  std::vector<stream_loop> loops;
  placement places;
};

// Returns the elements for each token that the plan reads and writes outside its arena.
inline extent outside_width(const planner::program& p) {
  extent n = 0;
  for (const planner::value_id r : p.results)
    if (p[r].per_token()) n += p[r].size();
  for (const planner::value& v : p.values)
    if (v.leaf && v.per_token()) n += v.size();
  return n;
}

// Returns a number of tokens, at least `least`, for which the experts of each group have about
// `rows` rows each time their weights are read.
inline extent group_tile(const planner::program& p, extent rows, extent least, const machine& m) {
  extent tile = least;
  for (const planner::expert_group& g : p.groups) {
    const extent wanted = rows * g.experts / std::max<extent>(1, g.expected);
    tile = std::max(tile, std::min(m.grouped_tile, wanted));
  }
  return tile;
}

// The largest tile whose data stays resident, in steps of the rows of a kernel.
inline tiling choose_tile(const planner::program& p, const planner::plan_options& o,
                          extent tokens) {
  const machine& m = o.on;
  const extent least = group_tile(p, m.kernel_rows, m.least_tile, m);
  for (extent wish = group_tile(p, 2 * m.kernel_rows, m.tile, m);; wish -= m.kernel_rows) {
    const extent tile = std::max<extent>(1, std::min(wish, tokens));
    tiling t{tile, least, streams(p, o, tile), {}};
    t.places = place(p, o, t.loops, tile);
    const extent bytes = (t.places.arena + outside_width(p) * tile) * o.element_bytes;
    const bool is_last = wish <= m.kernel_rows || !p.groups.empty();
    if (bytes <= m.resident || is_last) return t;
  }
}

}  // namespace fmoe::cpu
