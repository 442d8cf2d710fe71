// SPDX-License-Identifier: MIT
// expect: forward takes the layer's inputs, and then either nothing or an output for each result
// cause: A compiled layer has one result, and the call passes two outputs.
// cure: Pass an output for each result, or none: `forward(x, y)` or `const auto y = forward(x)`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const auto forward = compile(mxd<>{}, 4);
  tensor<float, 2> x({4, 8}), y({4, 3});
  forward(x, y);
#ifdef FMOE_MISUSE
  forward(x, y, y);
#endif
}
