// SPDX-License-Identifier: MIT
// expect: a / b: expressions have no division; multiply by the inverse
// cause: Expressions have `+`, `-` and `*`, but no `/`.
// cure: Multiply by `1 / number`.
#include <fmoe/expr/pointwise.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  x * (1 / 3.0);
#ifdef FMOE_MISUSE
  x / 3.0;
#endif
}
