// SPDX-License-Identifier: MIT
// expect: +, - and *: both sides are tensors or expressions, or one is a number
// cause: One side is a container, which has no shape.
// cure: Make a tensor of it: `tensor<float, 1>({8}, v)`.
#include <vector>

#include <fmoe/expr/pointwise.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  const std::vector<float> v(8);
  x + tensor<float, 1>({8}, v);
#ifdef FMOE_MISUSE
  x + v;
#endif
}
