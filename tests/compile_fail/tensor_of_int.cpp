// SPDX-License-Identifier: MIT
// expect: fmoe::tensor stores float, double, fmoe::bf16 or fmoe::f16
// cause: The element type is an integer or another type that fmoe does not compute with.
// cure: Store one of the four floating-point types.
#include <fmoe/tensor.hpp>

using namespace fmoe;

int main() {
  tensor<float, 2> good({2, 3});
#ifdef FMOE_MISUSE
  tensor<int, 2> x({2, 3});
#endif
}
