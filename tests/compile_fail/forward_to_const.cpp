// SPDX-License-Identifier: MIT
// expect: forward writes an output of the layer's arithmetic type that is not const
// cause: The output is const.
// cure: Pass an output that can be written.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const auto forward = compile(mxd<>{}, 4);
  tensor<float, 2> x({4, 8}), y({4, 3});
  forward(x, y);
#ifdef FMOE_MISUSE
  const tensor<float, 2>& fixed = y;
  forward(x, fixed);
#endif
}
