// SPDX-License-Identifier: MIT
// expect: einsum: each label of the result comes once, and from an operand
// cause: The result names a letter that no operand has.
// cure: After the arrow, use only letters of the operands.
#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  einsum<"ti,io->to">(x, w);
#ifdef FMOE_MISUSE
  einsum<"ti,io->tz">(x, w);
#endif
}
