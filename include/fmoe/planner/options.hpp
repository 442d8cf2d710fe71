// SPDX-License-Identifier: MIT
// The options with which a program is planned.
#pragma once

#include <fmoe/base/vector.hpp>
#include <fmoe/planner/kernel_facts.hpp>
#include <fmoe/planner/machine.hpp>

namespace fmoe {

// What a plan may choose freely: it changes the time of a call, and no bit of its results.
struct plan_shape {
  std::size_t tile = 96;             // tokens that go through the plan at a time
  std::size_t group_rows = 96;       // rows of an expert that a group computes at a time
  std::size_t streamed = 320 << 10;  // a value of a tile with more bytes is made and used in chunks
  std::size_t chunk = 768;           // of at most so many elements for each token
  std::size_t own_ahead = 2048;      // bytes ahead of their use at which weights come into L1
  std::size_t side_by_side = 4;      // weights of so many panels are read in turn for few rows
  bool screen = true;                // select by 16-bit scores and the bound of their error

  bool operator==(const plan_shape&) const = default;
};

}  // namespace fmoe

namespace fmoe::planner {

struct plan_options {
  machine on{};
  kernel_facts kernels{};
  plan_shape shape{};
  bool chooses_shape = false;  // take the shape whose time is predicted to be the least
  bool tunes = false;          // or the quickest of a few, which run once
  extent threads = 1;          // of a call
  extent element_bytes = 4;    // of the arithmetic type
  bool naive = false;  // materialise: first contract the parameters of every einsum with each other
  bool bf16_products = false;  // products with weights of bf16 round their rows to bf16, too
  bool int8_products = false;  // and those with weights of q8 round them to 8 bits

  // A product's sum is cut into blocks of so many terms. Each block is summed by itself and then
  // added, in order, so the rounding error grows with the block and the number of blocks instead of
  // the whole length. It is part of the result's bits.
  extent sum_block = 256;

  // By result without tokens: the shape of a table. Where tokens select its rows, those that they
  // selected are the result. Empty: the whole array.
  vector<vector<extent>> tables{};
  // A call writes its results without tokens to plain arrays.
  bool has_plain_sums = false;
};

}  // namespace fmoe::planner
