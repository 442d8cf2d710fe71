// SPDX-License-Identifier: MIT
// expect: fmoe::tensor: the shape has one extent for each axis
// cause: The shape has more or fewer extents than the type has axes.
// cure: Change the extents or the second template argument.
#include <fmoe/tensor.hpp>

using namespace fmoe;

int main() {
  tensor<float, 2> good({4, 8});
#ifdef FMOE_MISUSE
  tensor<float, 2> x({4, 8, 3});
#endif
}
