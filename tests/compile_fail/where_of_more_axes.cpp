// SPDX-License-Identifier: MIT
// expect: where: the condition has no more axes than the two values
// cause: The condition has a number for each token and entry, and one of the values has fewer axes.
// cure: Give that value all axes, for example by an einsum.
#include <fmoe/expr/pointwise.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  const tensor<float, 1> v({8});
  where(v, x, x);
#ifdef FMOE_MISUSE
  where(x, x, v);
#endif
}
