// SPDX-License-Identifier: MIT
// expect: einsum: write a letter for each axis instead of
// cause: The subscripts have three dots, with which numpy and PyTorch leave axes without a letter.
// cure: Write a letter for each axis of each operand, and those of the result behind the arrow.
#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  einsum<"ti,io->to">(x, w);
#ifdef FMOE_MISUSE
  einsum<"...i,io->...o">(x, w);
#endif
}
