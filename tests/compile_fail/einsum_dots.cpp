// SPDX-License-Identifier: MIT
// expect: einsum: subscripts are letters, commas and one arrow
// cause: The subscripts contain spaces, which numpy would ignore.
// cure: Remove the spaces.
#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  einsum<"ti,io->to">(x, w);
#ifdef FMOE_MISUSE
  einsum<"ti, io -> to">(x, w);
#endif
}
