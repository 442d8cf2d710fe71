// SPDX-License-Identifier: MIT
// expect: a batch is an array [token, expert] of floating-point numbers; for an expression pass evaluate(expression)
// cause: The coefficients are an expression, which has no elements yet.
// cure: Evaluate them: `statistics.add(evaluate(layer.coefficients(x)))`.
#include <fmoe/analysis/expert_statistics.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8}), a({4, 5});
  expert_statistics statistics(5);
  statistics.add(a);
#ifdef FMOE_MISUSE
  statistics.add(layer.coefficients(x));
#endif
}
