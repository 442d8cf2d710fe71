// SPDX-License-Identifier: MIT
// The plan of a lowered program for a GPU: the CPU's steps, without what serves caches. Nothing is
// made chunk by chunk, and a tile is all tokens whose temporaries fit the workspace.
#pragma once

#include <fmoe/backend/cpu/schedule/planning.hpp>
#include <fmoe/backend/cuda/kernels/screen_rows.hpp>
#include <fmoe/backend/cuda/roofline.hpp>

namespace fmoe::cuda {

// A GPU as the planner sees it, and what its kernels can do. What decides the order of sums is as
// on every machine.
template <class T>
machine machine_for(machine m) {
  if (std::is_same_v<T, double>) m.one.flops = m.every.flops /= 2;
  return m;
}

template <class T>
planner::kernel_facts kernel_facts_of() {
  return {.cache_line = 256,
          .whole_groups = true,
          .selection_size = &selection_row<T>::size,
          .screen_size = std::is_same_v<T, float> ? &screen_room::size : nullptr};
}

// Throws value_error if the temporaries of one token do not fit.
inline step_plan plan_of_shape(planner::program p, planner::plan_options how, extent workspace) {
  screen(p, how, p.token_count);
  const extent most = std::max<extent>(1, p.token_count);
  how.threads = 1;
  how.shape.streamed = all;
  how.shape.tile = how.chooses_shape ? most : std::min(how.shape.tile, most);
  const auto bytes = [&](const tiling& t) { return t.places.arena * how.element_bytes; };
  tiling tiles = tiling_of(p, how, p.token_count);
  while (bytes(tiles) > workspace && how.shape.tile > 1) {
    how.shape.tile = divide_up(how.shape.tile, 2);
    tiles = tiling_of(p, how, p.token_count);
  }
  expects<value_error>(bytes(tiles) <= workspace, "[cuda] the temporaries of one token take ",
                       bytes(tiles), " bytes, and the workspace has ", workspace);
  step_plan made = emitter(p, std::move(tiles), how).take();
  mark_ranking(made);
  return made;
}

// The plan that takes less time by the machine's roofline: with screened selections or without.
inline step_plan make_plan(planner::program p, extent tokens, planner::plan_options how,
                           extent workspace, math policy) {
  if (p.tokens && tokens != all) p.token_count = tokens;
  cpu::expects_memory(p, how);
  step_plan screened = plan_of_shape(p, how, workspace);
  const auto is_screen = [](const step& s) { return holds_alternative<screen_step>(s); };
  if (!how.chooses_shape || std::ranges::none_of(screened.steps, is_screen)) return screened;
  how.shape.screen = false;
  step_plan plain = plan_of_shape(p, how, workspace);
  const auto seconds = [&](const step_plan& of) {
    return roofline(of, p.leaves, how.on, policy, how.element_bytes).seconds();
  };
  return seconds(screened) < seconds(plain) ? screened : plain;
}

}  // namespace fmoe::cuda
