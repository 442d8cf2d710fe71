// SPDX-License-Identifier: MIT
// expect: fmoe::tensor: rows have no braces of their own, as in fmoe::tensor<float, 2>({2, 2}, {1, 2, 3, 4})
// cause: Each row has its own braces.
// cure: Write the shape, then all values: `tensor<float, 2> x({3, 2}, {1, 2, 3, 4, 5, 6})`.
#include <fmoe/tensor.hpp>

using namespace fmoe;

int main() {
  tensor<float, 2> good({3, 2}, {1, 2, 3, 4, 5, 6});
#ifdef FMOE_MISUSE
  tensor<float, 2> x{{1, 2}, {3, 4}, {5, 6}};
#endif
}
