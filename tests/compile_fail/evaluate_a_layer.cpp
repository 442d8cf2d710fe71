// SPDX-License-Identifier: MIT
// expect: evaluate takes a tensor or an expression; for a layer write evaluate(layer(x))
// cause: A layer becomes an expression only when it is called with its input.
// cure: Call the layer: `evaluate(layer(x))`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
  evaluate(layer(x));
#ifdef FMOE_MISUSE
  evaluate(layer, x);
#endif
}
