// SPDX-License-Identifier: MIT
// expect: ablated: the layer has coefficients(x) and mixed(x, a), or a list of deleted pairs
// cause: Only a layer with coefficients has experts that can be ablated, and this one has none.
// cure: Give the layer of your own `coefficients(x)` and `mixed(x, a)`.
#include <fmoe/edit.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const auto doubled = [](const auto& x) { return 2 * x; };
  doubled(tensor<float, 2>({4, 8}));
#ifdef FMOE_MISUSE
  ablated(doubled, {3, 4});
#endif
}
