// SPDX-License-Identifier: MIT
// expect: concat: the axis is below the operands' rank
// cause: Axes are counted from 0, and the axis is not below the rank.
// cure: Use an axis from 0 to the rank minus one.
#include <fmoe/expr/concat.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  concat<1>(x, x);
#ifdef FMOE_MISUSE
  concat<2>(x, x);
#endif
}
