// SPDX-License-Identifier: MIT
// expect: rewritten: levels are counted from 0
// cause: The layer has one level of experts, and a second one is named.
// cure: Leave out the level, or name the first one 0.
#include <fmoe/edit.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer{.gate = tensor<float, 2>({8, 5}), .decoder = tensor<float, 2>({16, 3})};
  layer.active;
#ifdef FMOE_MISUSE
  rewritten<1>(layer, 0, {1, 2, 3, 4, 5}, 1);
#endif
}
