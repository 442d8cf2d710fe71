// SPDX-License-Identifier: MIT
// expect: an expression has no elements to print; fmoe::evaluate(expression) has
// cause: An expression has computed nothing yet.
// cure: Print its value: `std::cout << evaluate(layer(x))`.
#include <fmoe/mxd.hpp>

#include <iostream>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
  std::cout << evaluate(layer(x));
#ifdef FMOE_MISUSE
  std::cout << layer(x);
#endif
}
