// SPDX-License-Identifier: MIT
// expect: as_eigen: a temporary ends before the Map of its elements: name it
// cause: The tensor ends with the statement, but the Map would go on showing its elements.
// cure: Name the tensor first.
#include <fmoe/eigen.hpp>

int main() {
  fmoe::tensor<float, 2> t({2, 3});
  fmoe::as_eigen(t);
#ifdef FMOE_MISUSE
  fmoe::as_eigen(fmoe::tensor<float, 2>({2, 3}));
#endif
}
