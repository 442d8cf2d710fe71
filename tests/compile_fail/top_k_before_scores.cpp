// SPDX-License-Identifier: MIT
// expect: top_k: the scores, a tensor or an expression, come first, then K
// cause: The arguments are swapped, or the scores are not a tensor.
// cure: Call `top_k(scores, K)`.
#include <fmoe/expr/selection.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> scores({4, 8});
  top_k(scores, 2);
#ifdef FMOE_MISUSE
  top_k(2, scores);
#endif
}
