// SPDX-License-Identifier: MIT
// expect: top_k: the scores have a last axis
#include <fmoe/expr/gate.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 0> number(std::array<extent, 0>{});
  const tensor<float, 1> scores({8});
  top_k(scores, 2);
  relu(number);
#ifdef FMOE_MISUSE
  top_k(number, 2);
#endif
}
