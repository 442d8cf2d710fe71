// SPDX-License-Identifier: MIT
// expect: gradient: dy, the weight of each number of y, comes third, as in fmoe::gradient(y, w, dy)
// cause: The gradient is that of the sum of `y` times `dy`, and the call has no `dy`.
// cure: Pass a tensor or an expression of the shape of `y`: `gradient(y, w, dy)`.
#include <fmoe/gradients.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3}), dy({4, 3});
  const auto y = einsum<"ti,io->to">(x, w);
  gradient(y, w, dy);
#ifdef FMOE_MISUSE
  gradient(y, w);
#endif
}
