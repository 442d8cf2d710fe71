// SPDX-License-Identifier: MIT
// What the kernels of a backend can do, and how they lay out what they read. It belongs to the
// kernels, whatever machine a program is planned for.
#pragma once

#include <fmoe/base/checked.hpp>

namespace fmoe::planner {

struct kernel_facts {
  extent cache_line = 64;         // bytes at whose multiples arrays of a plan begin
  extent panel = 32;              // columns of a packed panel
  bool whole_groups = false;      // a group computes the rows of all its experts at a time
  bool samples_kept = false;      // makes products only where a selection is above 0
  bool compacts = false;          // makes values of both passes only for kept entries
  bool screens_nonzeros = false;  // screens what is above bounds, too, and not the greatest alone
  // Elements of the selection of a row.
  extent (*selection_size)(extent keep) = [](extent) { return extent{0}; };
  // Elements of scratch for a token of a screened selection; null where selections are not
  // screened.
  extent (*screen_size)(extent depth, extent columns, extent keep, extent tokens) = nullptr;
};

}  // namespace fmoe::planner
