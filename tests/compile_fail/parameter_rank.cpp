// SPDX-License-Identifier: MIT
// expect: fmoe::tensor: the other tensor has another number of axes
// cause: A weight has another number of axes than the layer's parameter.
// cure: The comment beside each parameter names its axes; `fmoe::viewed` gives a parameter another shape.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  mxd<> layer;
  layer.bias = tensor<float, 1>({3});
#ifdef FMOE_MISUSE
  layer.bias = tensor<float, 2>({1, 3});
#endif
}
