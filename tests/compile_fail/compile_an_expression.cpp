// SPDX-License-Identifier: MIT
// expect: compile: the layer is called with expressions; for several inputs write compile(layer, arguments<2, 3>{}, tokens)
// cause: compile is given `layer(x)`, which already has its x.
// cure: Pass the layer itself, or a function: `compile([&](const auto& x) { return layer(x); }, 1024)`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
#ifdef FMOE_MISUSE
  compile(layer(x), 1024);
#endif
}
