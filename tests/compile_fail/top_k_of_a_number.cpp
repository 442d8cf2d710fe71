// SPDX-License-Identifier: MIT
// expect: top_k: the scores have a last axis
// cause: The scores are a single number.
// cure: Pass scores of at least one axis: the selection is along the last one.
#include <fmoe/expr/selection.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 0> number(std::array<std::size_t, 0>{});
  const tensor<float, 1> scores({8});
  top_k(scores, 2);
#ifdef FMOE_MISUSE
  top_k(number, 2);
#endif
}
