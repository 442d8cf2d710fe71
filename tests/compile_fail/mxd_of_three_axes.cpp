// SPDX-License-Identifier: MIT
// expect: einsum: an operand's rank differs from its subscripts
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  layer(tensor<float, 2>({4, 8}));
#ifdef FMOE_MISUSE
  layer(tensor<float, 3>({2, 4, 8}));
#endif
}
