// SPDX-License-Identifier: MIT
// expect: evaluate writes an array of the expression's arithmetic type that is not const
// cause: The output is const, or of another type than the expression computes in.
// cure: Pass an array of `float`, or of `double` where a leaf is double.
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
