// SPDX-License-Identifier: MIT
// expect: einsum: the subscripts are a template argument
// cause: The subscripts are an argument of the call, as in numpy; in fmoe they are a template argument, so that the compiler checks them.
// cure: Write them in angle brackets: `einsum<"ti,io->to">(x, w)`.
#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  einsum<"ti,io->to">(x, w);
#ifdef FMOE_MISUSE
  einsum("ti,io->to", x, w);
#endif
}
