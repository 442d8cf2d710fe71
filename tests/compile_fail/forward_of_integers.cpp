// SPDX-License-Identifier: MIT
// expect: forward takes arrays of float, double, fmoe::bf16 or fmoe::f16
// cause: An input stores integers, or is a pointer or a container without a shape.
// cure: Pass a tensor: `borrow(v, shape)` makes one of a container.
#include <array>

#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const auto forward = compile(mxd<>{}, 4);
  tensor<float, 2> x({4, 8}), y({4, 3});
  forward(x, y);
#ifdef FMOE_MISUSE
  forward(std::array<int, 32>{}, y);
#endif
}
