// SPDX-License-Identifier: MIT
// expect: fmoe::tensor: the other tensor stores another type, and nothing is converted
// cause: Weights of double are put into a layer of float.
// cure: Convert the weights, or use a layer of double: `fmoe::mxd<double>`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  mxd<> layer;
  layer.encoder = tensor<float, 2>({8, 16});
#ifdef FMOE_MISUSE
  layer.encoder = tensor<double, 2>({8, 16});
#endif
}
