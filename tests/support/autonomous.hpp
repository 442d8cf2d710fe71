// SPDX-License-Identifier: MIT
// A small AoE layer of reproducible numbers: 6 experts of rank 5 and width 9.
#pragma once

#include <fmoe/aoe.hpp>

#include "oracle.hpp"

namespace fmoe::test {

template <class T>
aoe<T> autonomous(extent inputs) {
  aoe<T> l;
  l.down = random<parameter<T, 3>>({inputs, 6, 5}, 1, 0.3f);
  l.up = random<parameter<T, 3>>({6, 5, 9}, 2, 0.3f);
  l.linear = random<parameter<T, 3>>({6, inputs, 9}, 3, 0.3f);
  l.output = random<parameter<T, 3>>({6, 9, inputs}, 4, 0.3f);
  return l;
}

}  // namespace fmoe::test
