// SPDX-License-Identifier: MIT
// expect: sliced: the axis is below the tensor's rank
// cause: Axes are counted from 0, and the axis is not below the rank.
// cure: Use an axis from 0 to the rank minus one.
#include <fmoe/arrays/sliced.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> w({8, 3});
  sliced<1>(w, 2);
#ifdef FMOE_MISUSE
  sliced<2>(w, 2);
#endif
}
