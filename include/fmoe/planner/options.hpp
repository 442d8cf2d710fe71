// SPDX-License-Identifier: MIT
// What the planner is told: facts of the machine and the arithmetic type, and limits that tests
// tighten.
#pragma once

#include <fmoe/base/checked.hpp>

namespace fmoe::planner {

// Of `evaluate`, `compile` and `explain`: the first two are for users.
struct plan_options {
  bool naive = false;  // materialise: contract the parameters of every einsum with each other first
  bool screen = true;  // select by 16-bit scores and their error bound, where it pays; the result
                       // is the same to the bit

  // The backend's facts (cpu::machine fills them in).
  extent element_bytes = 4;
  extent panel = 32;  // columns of a packed panel
  extent (*selection_size)(extent) = [](extent) {
    return extent{0};
  };  // elements that one row's top-k state takes
  extent (*screen_size)(extent depth, extent keep, extent tokens) =
      nullptr;                 // elements that screening one row takes; null: it cannot
  extent screened_tokens = 0;  // it pays in plans of at most so many tokens

  extent whole = extent{320} << 10;  // bytes a tile: a smaller intermediate is never streamed
  extent chunk_width = 768;          // elements per token of a streamed chunk
  // Bytes of a tile's arena, inputs and output: a few times L2. What is beyond it comes from L3
  // once or twice a tile, which costs less than reading every weight for fewer tokens.
  extent resident = extent{3000} << 10;
  extent max_tile = 96;  // tokens

  // A product's sum is cut into blocks of so many terms, each summed by itself and then added, in
  // order: the rounding error grows with the block and the number of blocks instead of the whole
  // length. Part of the result's bits.
  extent sum_block = 256;
};

}  // namespace fmoe::planner
