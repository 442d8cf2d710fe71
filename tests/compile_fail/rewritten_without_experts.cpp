// SPDX-License-Identifier: MIT
// expect: rewritten: the layer has coefficients(x) and mixed(x, a)
// cause: Only a layer with coefficients can be rewritten; this one has none, and Monet's has too many for a row.
// cure: Give the layer of your own `coefficients(x)` and `mixed(x, a)`.
#include <fmoe/edit.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const auto doubled = [](const auto& x) { return 2 * x; };
  doubled(tensor<float, 2>({4, 8}));
#ifdef FMOE_MISUSE
  const std::vector<double> mean{1, 0};
  rewritten(doubled, 3, mean, 1.0);
#endif
}
