// SPDX-License-Identifier: MIT
// expect: expert_gate: levels are counted from 0
// cause: The layer has two levels, and a third one is asked for.
// cure: Name the first level 0: `layer.coefficients<1>(x)` is that of the second.
#include <fmoe/mumoe.hpp>

using namespace fmoe;

int main() {
  const cp_mumoe<2> layer;
  const tensor<float, 2> x({4, 8});
  layer.coefficients<1>(x);
#ifdef FMOE_MISUSE
  layer.coefficients<2>(x);
#endif
}
