// SPDX-License-Identifier: MIT
// The machine that a program is planned for, as the passes see it. A backend fills it in, and a
// value of the user's replaces it, so that a plan is the same wherever it is made. No pass holds a
// number of a machine.
#pragma once

#include <string>

#include <fmoe/base/checked.hpp>

namespace fmoe {

// The numbers of a machine that the planner needs; every pass reads them here.
struct machine {
  std::string name = "any machine";

  // Memory, in bytes.
  std::size_t cache_line = 64;
  std::size_t set_stride = 2048;     // rows at multiples of this distance share few sets of L1
  std::size_t streamed = 320 << 10;  // a smaller intermediate of a tile is never streamed
  // Arena, inputs and outputs of a tile: a few times L2, because L3 gives back a row for less than
  // a weight costs.
  std::size_t resident = 3000 << 10;

  // Products.
  std::size_t panel = 32;           // columns of a packed panel
  std::size_t narrow = 8;           // a shorter last axis does not fill a vector
  std::size_t kernel_rows = 12;     // rows that one call of the product's kernel computes
  std::size_t tile = 96;            // tokens of a tile, at most
  std::size_t grouped_tile = 1024;  // the same where experts wait for the tokens that select them
  std::size_t least_tile = 24;      // a tile is not cut below this for another thread
  std::size_t chunk = 768;          // elements of a streamed chunk for each token

  // Costs, for the order of contractions. The order decides the bits of a result, so these numbers
  // are not for tuning.
  double rows = 96;               // rows of a tile, as the order search assumes them
  double flops_per_byte = 8;      // floating-point operations that take as long as one byte
  std::size_t crowded = 1 << 16;  // elements a token: from here on a tile's rows leave L2,
  double crowded_factor = 64;     // and a byte of them costs so many times more

  // Selections.
  std::size_t sampled =
      16;  // with fewer columns for each selected one, a product over all is faster
  // A sum over tokens reads a selection of at most one in so many entries, and dense rows
  // otherwise.
  std::size_t summed_entries_a_kept = 4;
  // Elements of the selection of a row.
  std::size_t (*selection_size)(std::size_t keep) = [](std::size_t) { return std::size_t{0}; };
  // Elements of scratch for a token of a screened selection; null where selections are not
  // screened.
  std::size_t (*screen_size)(std::size_t depth, std::size_t keep, std::size_t tokens) = nullptr;
  std::size_t screened_tokens = 0;           // screening pays in plans of at most this many tokens,
  std::size_t screened_columns = 1024;       // of at least this many columns,
  std::size_t screened_depth = 64;           // with products at least this long,
  std::size_t screened_columns_a_kept = 64;  // and this many columns for each that is kept
};

}  // namespace fmoe
