// SPDX-License-Identifier: MIT
// expect: gradient: dy has as many axes as y
// cause: dy weights each number of y, and has another number of axes.
// cure: Give dy the shape of y; a sum over all tokens has none: `tensor<float, 0>`.
#include <fmoe/gradients.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  const tensor<float, 1> dy({8});
#ifdef FMOE_MISUSE
  gradient(relu(x), x, dy);
#endif
}
