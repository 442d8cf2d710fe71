// SPDX-License-Identifier: MIT
// expect: einsum: an operand is a fmoe::tensor, a fmoe::parameter or an expression
// cause: An operand is a container, which has no shape.
// cure: Make a tensor of it: `borrow(v, shape)` shares its elements, `tensor<float, 2>(shape, v)` copies them.
#include <vector>

#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8}), w({8, 3});
  const std::vector<float> v(24);
  einsum<"ti,io->to">(x, borrow(v, std::array<extent, 2>{8, 3}));
#ifdef FMOE_MISUSE
  einsum<"ti,io->to">(x, v);
#endif
}
