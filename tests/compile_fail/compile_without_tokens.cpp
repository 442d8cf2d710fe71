// SPDX-License-Identifier: MIT
// expect: compile(layer, tokens): say for how many tokens at most, not with which input
// cause: compile plans for a number of tokens, which is missing.
// cure: Say the greatest number of tokens of a call: `compile(layer, 1024)`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
#ifdef FMOE_MISUSE
  compile(layer);
#endif
}
