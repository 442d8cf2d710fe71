// SPDX-License-Identifier: MIT
// expect: relu and its like take a tensor or an expression; for a layer write relu(layer(x))
// cause: A layer was passed that was not called.
// cure: Call it: `relu(layer(x))`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  const mxd<> layer;
  relu(layer(x));
#ifdef FMOE_MISUSE
  relu(layer);
#endif
}
