// SPDX-License-Identifier: MIT
// expect: choose: both expressions have the same rank
// cause: The two expressions have different numbers of axes.
// cure: Bring both to the same rank first.
#include <fmoe/expr/expression.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  const tensor<float, 1> v({8});
  choose(true, x, x);
#ifdef FMOE_MISUSE
  choose(true, x, v);
#endif
}
