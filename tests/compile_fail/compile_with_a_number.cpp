// SPDX-License-Identifier: MIT
// expect: compile: options are named, as in fmoe::compile(layer, 128, {.threads = 2})
// cause: A number follows the number of tokens.
// cure: Name the option: `compile(layer, 128, {.threads = 2})`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  compile(layer, 128, {.threads = 2});
  compile(layer, 128, {});
#ifdef FMOE_MISUSE
  compile(layer, 128, 2);
#endif
}
