// SPDX-License-Identifier: MIT
// expect: mov takes two operands, [token, hidden unit] and the coefficients [token, expert]
// cause: Unless told otherwise, compile calls a layer with one argument of two axes.
// cure: Say the rank of each argument: `compile(layer, arguments<2, 2>{}, 1024)`.
#include <fmoe/moe.hpp>

using namespace fmoe;

int main() {
  mov<> layer{tensor<float, 2>({5, 8}), tensor<float, 2>({8, 3})};
  compile(layer, arguments<2, 2>{}, 4);
#ifdef FMOE_MISUSE
  compile(layer, 4);
#endif
}
