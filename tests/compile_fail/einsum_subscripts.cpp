// SPDX-License-Identifier: MIT
// expect: einsum: subscripts are letters, a comma between operands and at most one arrow
// cause: The subscripts have another character, a second arrow, or a comma behind the arrow.
// cure: Write a letter for each axis, a comma between operands, and the letters of the result behind `->`, as in `"ti,io->to"`.
#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  einsum<"ti,io->to">(x, w);
#ifdef FMOE_MISUSE
  einsum<"ti;io->to">(x, w);
#endif
}
