// SPDX-License-Identifier: MIT
// expect: an expression of other numbers or axes has another type: give it a name of its own
// cause: The type of an expression tells its numbers and its axes, and `mean(x)` has an axis less than `x`.
// cure: Write `const auto means = mean(x)`. A variable takes other expressions of its numbers and axes: `sum = sum + relu(x)`.
#include <fmoe/evaluate.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  auto sum = relu(x);
  sum = sum + relu(x);
#ifdef FMOE_MISUSE
  sum = mean(x);
#endif
}
