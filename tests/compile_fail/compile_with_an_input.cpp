// SPDX-License-Identifier: MIT
// expect: compile(layer, tokens): say for how many tokens at most, not with which input
// cause: compile is given an input, but each call brings its own input.
// cure: Say the greatest number of tokens of a call, then call: `compile(layer, 1024)(x, y)`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
#ifdef FMOE_MISUSE
  compile(layer, x);
#endif
}
