// SPDX-License-Identifier: MIT
// expect: evaluate writes an array of the expression's arithmetic type that is not const
// cause: The output is const, or its type is not the type in which the expression is computed.
// cure: Pass an array of `float`, or of `double` if an operand of the expression is double.
#include <vector>

#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 1> x({4});
  std::vector<float> y(4);
  evaluate(relu(x), y);
#ifdef FMOE_MISUSE
  const auto& fixed = y;
  evaluate(relu(x), fixed);
#endif
}
