// SPDX-License-Identifier: MIT
// expect: steered: the layer has coefficients(x) and mixed(x, a)
// cause: Only a layer with coefficients can be steered, and this one has none.
// cure: Give the layer of your own `coefficients(x)`, `mixed(x, a)` and `expert(n)`; Monet's takes a pair, `{i, j}`.
#include <fmoe/edit.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const auto doubled = [](const auto& x) { return 2 * x; };
  doubled(tensor<float, 2>({4, 8}));
#ifdef FMOE_MISUSE
  steered(doubled, 3, 1.0);
#endif
}
