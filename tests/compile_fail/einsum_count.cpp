// SPDX-License-Identifier: MIT
// expect: einsum: the subscripts name another number of operands
// cause: Commas separate the operands; there are more or fewer operands than arguments.
// cure: Pass one operand for each group of letters.
#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  einsum<"ti,io->to">(x, w);
#ifdef FMOE_MISUSE
  einsum<"ti,io->to">(x);
#endif
}
