// SPDX-License-Identifier: MIT
// expect: a Monet layer takes x [token, input], g1 [token, head, half] and g2, as in layer(x, router.g1(x), router.g2(x)) or compile(layer, arguments<2, 3, 3>{}, tokens)
// cause: A Monet layer does not route tokens itself, because several layers share a router.
// cure: Call `layer(x, router.g1(x), router.g2(x))`.
#include <fmoe/monet.hpp>

using namespace fmoe;

int main() {
  const monet_hd<> layer;
  const tensor<float, 2> x({4, 8});
  layer.bias;
#ifdef FMOE_MISUSE
  layer(x);
#endif
}
