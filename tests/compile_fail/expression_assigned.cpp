// SPDX-License-Identifier: MIT
// expect: an expression of another formula has another type: give it a name of its own, or make both fmoe::erased(expression)
// cause: The type of an expression tells how it is computed, and `sum + relu(x)` is computed otherwise than `sum`.
// cure: In a loop, let `sum` be `erased(relu(x))`, and assign `erased(sum + relu(x))`; else write `const auto more = sum + relu(x)`.
#include <fmoe/evaluate.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  auto all = erased(relu(x));
  all = erased(all + relu(x));
  auto sum = relu(x);
#ifdef FMOE_MISUSE
  sum = sum + relu(x);
#endif
}
