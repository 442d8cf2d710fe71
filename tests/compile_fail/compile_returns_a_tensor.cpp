// SPDX-License-Identifier: MIT
// expect: compile: the layer returns an expression or a tuple of them, and not what evaluate makes of one
// cause: The layer evaluates its result, but compile makes a plan of an expression.
// cure: Return the expression itself.
#include <fmoe/compile.hpp>
#include <fmoe/evaluate.hpp>

using namespace fmoe;

int main() {
  const parameter<float, 2> w({8, 3});
  const auto layer = [&](const auto& x) { return einsum<"ti,io->to">(x, w); };
  compile(layer, 4);
#ifdef FMOE_MISUSE
  const auto made = [&](const auto& x) { return evaluate(einsum<"ti,io->to">(x, w)); };
  compile(made, 4);
#endif
}
