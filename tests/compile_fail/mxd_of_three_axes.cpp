// SPDX-License-Identifier: MIT
// expect: auto operator()(const operand_of<2> auto& x) const
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  layer(tensor<float, 2>({4, 8}));
#ifdef FMOE_MISUSE
  layer(tensor<float, 3>({2, 4, 8}));
#endif
}
