// SPDX-License-Identifier: MIT
// expect: einsum: an operand is a tensor, a parameter, an expression or an array
// cause: An operand is none of these; for example, it is a layer that was not called.
// cure: Call it: `layer(x)`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  const mxd<> layer;
  einsum<"ti,io->to">(layer(x), w);
#ifdef FMOE_MISUSE
  einsum<"ti,io->to">(layer, w);
#endif
}
