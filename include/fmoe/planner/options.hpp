// SPDX-License-Identifier: MIT
// The inputs of the planner: facts of the machine and of the arithmetic type, and limits, which
// tests make tighter.
#pragma once

#include <fmoe/base/checked.hpp>

namespace fmoe::planner {

// The options of `evaluate`, `compile` and `explain`. The members `naive` and `screen` are for
// users.
struct plan_options {
  bool naive = false;  // materialise: first contract the parameters of every einsum with each other
  bool screen = true;  // select by 16-bit scores and their error bound, where it pays; the result
                       // is the same to the bit

  // The facts of the backend; cpu::machine sets them.
  extent element_bytes = 4;
  extent panel = 32;  // columns of a packed panel
  // Returns the elements that the top-k state of one row takes.
  extent (*selection_size)(extent) = [](extent) { return extent{0}; };
  // Returns the elements that screening one row takes; null if the backend cannot screen.
  extent (*screen_size)(extent depth, extent keep, extent tokens) = nullptr;
  extent screened_tokens = 0;  // screening pays in plans of at most this many tokens

  extent whole = extent{320} << 10;  // an intermediate with fewer bytes in a tile is never streamed
  extent chunk_width = 768;          // elements of a streamed chunk for each token
  // Bytes of a tile's arena, inputs and output: a few times L2. Data beyond this comes from L3 once
  // or twice for each tile, which costs less than reading every weight for fewer tokens.
  extent resident = extent{3000} << 10;
  extent max_tile = 96;  // tokens

  // The sum of a product is cut into blocks of this many terms; each block is summed separately,
  // and the blocks are added in order. So the rounding error grows with the block and the number of
  // blocks instead of the whole length. The value determines the bits of results.
  extent sum_block = 256;
};

}  // namespace fmoe::planner
