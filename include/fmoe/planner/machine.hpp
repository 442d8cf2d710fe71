// SPDX-License-Identifier: MIT
// The machine that a program is planned for, as the passes see it. A backend fills it in, and a
// value of the user's replaces it, so that a plan is the same wherever it is made. No pass holds a
// number of a machine.
#pragma once

#include <string>

#include <fmoe/base/checked.hpp>

namespace fmoe {

struct machine {
  std::string name = "any machine";

  // Memory, in bytes.
  extent cache_line = 64;
  extent set_stride = 2048;              // rows at multiples of this distance share few sets of L1
  extent streamed = extent{320} << 10;   // a smaller intermediate of a tile is never streamed
  extent resident = extent{3000} << 10;  // arena, inputs and outputs of a tile: a few times L2,
                                         // since L3 gives back a row for less than a weight costs

  // Products.
  extent panel = 32;           // columns of a packed panel
  extent narrow = 8;           // a shorter last axis does not fill a vector
  extent kernel_rows = 12;     // rows that one call of the product's kernel computes
  extent tile = 96;            // tokens of a tile, at most
  extent grouped_tile = 1024;  // the same where experts wait for the tokens that select them
  extent least_tile = 24;      // a tile is not cut below this for another thread
  extent chunk = 768;          // elements of a streamed chunk for each token

  // Costs, for the order of contractions. The order decides the bits of a result, so these numbers
  // are not for tuning.
  double rows = 96;                  // rows of a tile, as the order search assumes them
  double flops_per_byte = 8;         // floating-point operations that take as long as one byte
  extent crowded = extent{1} << 16;  // elements a token: from here on a tile's rows leave L2,
  double crowded_factor = 64;        // and a byte of them costs so many times more

  // Selections.
  extent sampled = 16;  // with fewer columns for each selected one, a product over all is faster
  extent (*selection_size)(extent keep) = [](extent) { return extent{0}; };  // elements of a row's
  // Elements of scratch for a token of a screened selection; null where selections are not
  // screened.
  extent (*screen_size)(extent depth, extent keep, extent tokens) = nullptr;
  extent screened_tokens = 0;           // screening pays in plans of at most this many tokens,
  extent screened_columns = 1024;       // of at least this many columns,
  extent screened_depth = 64;           // with products at least this long,
  extent screened_columns_a_kept = 64;  // and this many columns for each that is kept
};

}  // namespace fmoe
