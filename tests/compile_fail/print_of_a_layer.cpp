// SPDX-License-Identifier: MIT
// expect: a layer has no elements to print; its parameters and fmoe::evaluate(layer(x)) have
// cause: A layer is several tensors and a formula.
// cure: Print one of its parameters, or the output for an input.
#include <fmoe/mxd.hpp>

#include <iostream>

using namespace fmoe;

int main() {
  const mxd<> layer;
  std::cout << layer.bias;
#ifdef FMOE_MISUSE
  std::cout << layer;
#endif
}
