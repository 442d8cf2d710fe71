// SPDX-License-Identifier: MIT
// expect: a Monet layer takes x [token, input], g1 [token, head, half] and g2, as in layer(x, router.g1(x), router.g2(x)) or compile(layer, arguments<2, 3, 3>{}, tokens)
// cause: Unless told otherwise, compile calls a layer with one argument of two axes, and Monet takes its routing, too.
// cure: Say the rank of each argument: `compile(layer, arguments<2, 3, 3>{}, 500)`.
#include <fmoe/monet.hpp>

using namespace fmoe;

int main() {
  const monet_hd<> layer;
#ifdef FMOE_MISUSE
  compile(layer, 500);
#endif
}
