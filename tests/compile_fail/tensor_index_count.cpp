// SPDX-License-Identifier: MIT
// expect: fmoe::tensor: an element has one index for each axis
// cause: The number of indices is not the number of axes.
// cure: Give one index for each axis; a whole row is not an element.
#include <fmoe/tensor.hpp>

using namespace fmoe;

int main() {
  tensor<float, 2> x({4, 8});
  x(3, 7) = 1;
#ifdef FMOE_MISUSE
  x(3) = 1;
#endif
}
