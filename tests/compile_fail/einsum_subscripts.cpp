// SPDX-License-Identifier: MIT
// expect: einsum: subscripts are letters, commas and one arrow
// cause: The subscripts have no arrow.
// cure: Write the letters of the result behind `->`, as in `"ti,io->to"`.
#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  einsum<"ti,io->to">(x, w);
#ifdef FMOE_MISUSE
  einsum<"ti,io">(x, w);
#endif
}
