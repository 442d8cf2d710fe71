// SPDX-License-Identifier: MIT
// expect: fmoe::tensor: the shape is in braces, as in fmoe::tensor<float, 2>({4, 8})
// cause: The extents are separate arguments.
// cure: Write the shape as one argument: `tensor<float, 2> x({4, 8})`.
#include <fmoe/tensor.hpp>

using namespace fmoe;

int main() {
  tensor<float, 2> good({4, 8});
#ifdef FMOE_MISUSE
  tensor<float, 2> x(4, 8);
#endif
}
