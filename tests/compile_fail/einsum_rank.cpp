// SPDX-License-Identifier: MIT
// expect: einsum: an operand's rank differs from its subscripts
// cause: The subscripts of an operand need one letter for each of its axes.
// cure: Write as many letters as the tensor has axes, or pass the tensor that was meant.
#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  einsum<"ti,io->to">(x, w);
#ifdef FMOE_MISUSE
  einsum<"tbi,io->to">(x, w);
#endif
}
