// SPDX-License-Identifier: MIT
// expect: quantize takes a layer of floating-point numbers whose type says what it stores, as fmoe::mxd<float> does; quantized<fmoe::q8>(tensor, axis) takes a tensor
// cause: The argument is a tensor, a layer of 8 bits already, or a layer whose type does not say what it stores.
// cure: `quantized<q8>(tensor, axis)` for a tensor.
#include <fmoe/mxd.hpp>
#include <fmoe/quantize.hpp>

using namespace fmoe;

int main() {
  const auto small = quantize(mxd<>());
#ifdef FMOE_MISUSE
  quantize(small.encoder);
#endif
}
