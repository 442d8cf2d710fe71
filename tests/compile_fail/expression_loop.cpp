// SPDX-License-Identifier: MIT
// expect: an expression has no elements to loop over; fmoe::evaluate(expression) has
// cause: An expression has computed nothing yet.
// cure: Evaluate it, and loop over the result: `for (const float v : evaluate(layer(x)))`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
  float sum = 0;
  for (const float v : evaluate(layer(x))) sum += v;
#ifdef FMOE_MISUSE
  for (const float v : layer(x)) sum += v;
#endif
}
