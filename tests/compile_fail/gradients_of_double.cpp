// SPDX-License-Identifier: MIT
// expect: gradients take no double into a layer of float: convert it first
// cause: The layer computes in float, and an input is double.
// cure: Convert the input to float, or make a layer of double.
#include <fmoe/gradients.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
#ifdef FMOE_MISUSE
  gradients(mxd<>(), tensor<double, 2>({4, 8}), tensor<float, 2>({4, 3}));
#endif
}
