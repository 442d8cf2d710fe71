// SPDX-License-Identifier: MIT
// expect: forward writes an output of the layer's arithmetic type that is not const
// cause: The output stores another type than the layer computes in.
// cure: Pass an output of float for a layer of float, and of double for a layer of double.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const auto forward = compile(mxd<>{}, 4);
  tensor<float, 2> x({4, 8}), y({4, 3});
  forward(x, y);
#ifdef FMOE_MISUSE
  tensor<double, 2> wide({4, 3});
  forward(x, wide);
#endif
}
