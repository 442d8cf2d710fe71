// SPDX-License-Identifier: MIT
// expect: top_k: K is a whole number
// cause: K is a floating-point number, or a bool.
// cure: Pass an integer; `top_p` takes a share of the probability.
#include <fmoe/expr/selection.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> scores({4, 8});
  top_k(scores, 2);
#ifdef FMOE_MISUSE
  top_k(scores, 2.5);
#endif
}
