// SPDX-License-Identifier: MIT
// Where the elements of a step's operands lie, and what is applied to its result.
#pragma once

#include <fmoe/base/number_function.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::plan {

// The elements at row + offset + step * (position of the enclosing loop) + expert * (number of the
// group's expert).
struct view {
  static constexpr extent none = ~extent{0};
  extent storage = none;
  extent offset = 0, step = 0, expert = 0;

  bool exists() const { return storage != none; }
  bool operator==(const view&) const = default;
};

struct epilogue {  // applied to a finished tile while it is in L1
  pass_kind what = pass_kind::map;
  number_function f{};  // of a map
  view other{};
  extent period = 0;  // elements of `other`, which repeats along the row
  bool operator==(const epilogue&) const = default;
};

struct nest_axis {  // one loop of a small product; strides in elements
  extent length = 0, a = 0, b = 0, c = 0;
  bool operator==(const nest_axis&) const = default;
};

}  // namespace fmoe::plan
