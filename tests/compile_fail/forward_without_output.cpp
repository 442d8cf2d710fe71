// SPDX-License-Identifier: MIT
// expect: forward takes the layer's inputs, then an output for each result
// cause: A compiled layer writes into memory of the caller, and the call passes none.
// cure: Pass the output last: `forward(x, y)`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const auto forward = compile(mxd<>{}, 4);
  tensor<float, 2> x({4, 8}), y({4, 3});
  forward(x, y);
#ifdef FMOE_MISUSE
  forward(x);
#endif
}
