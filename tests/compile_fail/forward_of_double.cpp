// SPDX-License-Identifier: MIT
// expect: forward takes no double into a layer of float: convert it first
// cause: A double input would be rounded to float in every call.
// cure: Convert the input once, or compile a layer of double.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const auto forward = compile(mxd<>{}, 4);
  tensor<float, 2> x({4, 8}), y({4, 3});
  forward(x, y);
#ifdef FMOE_MISUSE
  forward(tensor<double, 2>({4, 8}), y);
#endif
}
