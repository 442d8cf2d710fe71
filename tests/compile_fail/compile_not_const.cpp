// SPDX-License-Identifier: MIT
// expect: compile: the layer's operator() is const, and a lambda not mutable
// cause: A layer is called while it is const, and the call operator of this one may change it.
// cure: Write `const` behind the parameters of `operator()`, and leave out `mutable` of a lambda.
#include <fmoe/compile.hpp>

using namespace fmoe;

int main() {
  const parameter<float, 2> w({8, 3});
  compile([=](const auto& x) { return einsum<"ti,io->to">(x, w); }, 4);
#ifdef FMOE_MISUSE
  compile([=](const auto& x) mutable { return einsum<"ti,io->to">(x, w); }, 4);
#endif
}
