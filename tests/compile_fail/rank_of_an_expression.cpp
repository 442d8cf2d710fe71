// SPDX-License-Identifier: MIT
// expect: a rank needs an array [row, column] of floating-point numbers; for an expression pass evaluate(expression)
// cause: The expert's matrix is an expression, which has no elements yet.
// cure: Evaluate it: `numerical_rank(evaluate(layer.expert(3)))`.
#include <fmoe/mxd.hpp>
#include <fmoe/rank.hpp>

#include "../support/svd.hpp"

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> w({16, 3});
  numerical_rank(w);
#ifdef FMOE_MISUSE
  numerical_rank(layer.expert(3));
#endif
}
