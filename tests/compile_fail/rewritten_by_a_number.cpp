// SPDX-License-Identifier: MIT
// expect: rewritten: the mean coefficients are a list with a number for each expert
// cause: The mean coefficients are one number.
// cure: Pass a list, such as `population.mean_coefficients()`.
#include <fmoe/edit.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer{.gate = tensor<float, 2>({8, 5}), .decoder = tensor<float, 2>({16, 3})};
  layer.active;
#ifdef FMOE_MISUSE
  rewritten(layer, 0, 0.5, 1);
#endif
}
