// SPDX-License-Identifier: MIT
// The plan of a lowered program for a GPU: the CPU's steps, without what serves caches. Nothing is
// made chunk by chunk, and a tile is all tokens whose temporaries fit the workspace.
#pragma once

#include <fmoe/backend/cpu/plan/planning.hpp>
#include <fmoe/backend/cuda/kernels/selection.hpp>
#include <fmoe/backend/cuda/policy.hpp>

namespace fmoe::cuda {

// A GPU as the planner sees it. What decides the order of sums is as on every machine.
template <class T>
machine machine_for(machine m) {
  if (std::is_same_v<T, double>) m.one.flops = m.every.flops /= 2;
  m.cache_line = 256;
  m.whole_groups = true;
  m.selection_size = &selection_row<T>::size;
  m.screen_size = nullptr;
  return m;
}

// Throws value_error if the temporaries of one token do not fit.
inline cpu::plan make_plan(planner::program p, extent tokens, planner::plan_options how,
                           extent workspace) {
  if (p.tokens && tokens != all) p.token_count = tokens;
  cpu::expects_memory(p, how);
  const extent most = std::max<extent>(1, p.token_count);
  how.threads = 1;
  how.shape.streamed = all;
  how.shape.tile = how.chooses_shape ? most : std::min(how.shape.tile, most);
  const auto bytes = [&](const cpu::tiling& t) { return t.places.arena * how.element_bytes; };
  cpu::tiling tiles = cpu::tiling_of(p, how, p.token_count);
  while (bytes(tiles) > workspace && how.shape.tile > 1) {
    how.shape.tile = divide_up(how.shape.tile, 2);
    tiles = cpu::tiling_of(p, how, p.token_count);
  }
  expects<value_error>(bytes(tiles) <= workspace, "[cuda] the temporaries of one token take ",
                       bytes(tiles), " bytes, and the workspace has ", workspace);
  cpu::plan made = cpu::emitter(p, std::move(tiles), how).take();
  mark_ranking(made);
  return made;
}

}  // namespace fmoe::cuda
