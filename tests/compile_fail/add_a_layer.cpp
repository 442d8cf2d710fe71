// SPDX-License-Identifier: MIT
// expect: +, -, * and /: both sides are tensors or expressions, or one is a number
// cause: One side is not a tensor, an expression or a number; for example, it is a layer that was not called.
// cure: Call it: `x + layer(x)`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  const mxd<> layer;
  x + layer(x);
#ifdef FMOE_MISUSE
  x + layer;
#endif
}
