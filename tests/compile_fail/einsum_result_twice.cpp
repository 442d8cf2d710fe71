// SPDX-License-Identifier: MIT
// expect: einsum: each label of the result comes once, and from an operand
// cause: The result names a letter twice.
// cure: Name each letter of the result once; an einsum cannot make a diagonal matrix.
#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  einsum<"ti,io->to">(x, w);
#ifdef FMOE_MISUSE
  einsum<"ti,io->tt">(x, w);
#endif
}
