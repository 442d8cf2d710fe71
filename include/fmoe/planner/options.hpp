// SPDX-License-Identifier: MIT
// The options with which a program is planned.
#pragma once

#include <fmoe/planner/machine.hpp>

namespace fmoe::planner {

struct plan_options {
  machine on{};
  extent element_bytes = 4;  // of the arithmetic type
  bool naive = false;  // materialise: first contract the parameters of every einsum with each other
  bool screen = true;  // select by 16-bit scores and their error bound where that pays

  // A product's sum is cut into blocks of so many terms. Each block is summed by itself and then
  // added, in order, so the rounding error grows with the block and the number of blocks instead of
  // the whole length. It is part of the result's bits.
  extent sum_block = 256;
};

}  // namespace fmoe::planner
