// SPDX-License-Identifier: MIT
// expect: an expression has no elements; fmoe::evaluate(expression) has
// cause: An expression has computed nothing yet.
// cure: Evaluate it once, and read the elements of the result: `const auto y = evaluate(layer(x))` and `y(0, 0)`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
  const auto y = evaluate(layer(x));
  y(0, 0);
#ifdef FMOE_MISUSE
  const float first = layer(x)(0, 0);
#endif
}
