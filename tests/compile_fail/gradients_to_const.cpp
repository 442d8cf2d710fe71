// SPDX-License-Identifier: MIT
// expect: gradients write y and dx of the layer's arithmetic type that are not const
// cause: y or dx is const or of another type than the layer's arithmetic.
// cure: Pass arrays of the layer's type that can be written.
#include <fmoe/gradients.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
#ifdef FMOE_MISUSE
  auto step = compile_gradients(mxd<>(), 16);
  const tensor<float, 2> x({4, 8}), dy({4, 3}), y({4, 3}), dx({4, 8});
  step(x, dy, y, dx);
#endif
}
