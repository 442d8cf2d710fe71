// SPDX-License-Identifier: MIT
// expect: compile calls a layer with an expression: its parameter is const auto& x, and no tensor
// cause: The lambda takes a tensor, but a layer is called with expressions when it is compiled.
// cure: Write `const auto& x`; the layer then takes tensors as well.
#include <fmoe/compile.hpp>
#include <fmoe/evaluate.hpp>

using namespace fmoe;

int main() {
  const parameter<float, 2> w({8, 3});
  const auto layer = [&](const auto& x) { return einsum<"ti,io->to">(x, w); };
  compile(layer, 4);
#ifdef FMOE_MISUSE
  const auto other = [&](const tensor<float, 2>& x) { return einsum<"ti,io->to">(x, w); };
  compile(other, 4);
#endif
}
