// SPDX-License-Identifier: MIT
// expect: an expression has no elements; fmoe::evaluate(expression) has
// cause: Files hold elements, and an expression has none before it is evaluated.
// cure: Write `evaluate(layer(x))`.
#include <fmoe/io/npy.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
  io::npy::write("y.npy", x);
#ifdef FMOE_MISUSE
  io::npy::write("y.npy", layer(x));
#endif
}
