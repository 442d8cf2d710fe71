// SPDX-License-Identifier: MIT
// expect: fmoe::tensor: rows have no braces of their own, as in fmoe::tensor<float, 2>({2, 2}, {1, 2, 3, 4})
// cause: Each row has its own braces. The compiler would take two rows of whole numbers for a shape and values.
// cure: Write the shape, then all values: `tensor<float, 2> x({2, 2}, {.5, 1, 2, 4})`.
#include <fmoe/tensor.hpp>

using namespace fmoe;

int main() {
  tensor<float, 2> good({2, 2}, {.5, 1, 2, 4}), alike{{2, 2}, {.5, 1, 2, 4}};
#ifdef FMOE_MISUSE
  tensor<float, 2> x{{.5, 1.}, {2, 4}};
#endif
}
