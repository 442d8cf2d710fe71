// SPDX-License-Identifier: MIT
// expect: steered: write steered(layer, n, lambda), for Monet steered(layer, {i, j}, lambda)
// cause: There are more or fewer arguments than an expert and a factor.
// cure: Steer a steered layer again for a second expert; a pair of Monet stands in braces.
#include <fmoe/edit.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer{.gate = tensor<float, 2>({8, 5}), .decoder = tensor<float, 2>({16, 3})};
  layer.active;
#ifdef FMOE_MISUSE
  steered(layer, 1, 2, 0.5);
#endif
}
