// SPDX-License-Identifier: MIT
// expect: fmoe::tensor: an expression has no elements; fmoe::evaluate(expression) has
// cause: An expression has computed nothing yet.
// cure: Evaluate it: `tensor<float, 2> y = evaluate(layer(x))`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
  auto expression = layer(x);
#ifdef FMOE_MISUSE
  tensor<float, 2> y = layer(x);
#endif
}
