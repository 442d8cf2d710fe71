// SPDX-License-Identifier: MIT
// expect: compile: the option is .threads, as in fmoe::compile(layer, 128, {.threads = 2})
// cause: The option is misspelt. Of most other names that no option has compilers say only `no matching function`, and they name the member if the type stands there: `compile_options{.scren = false}`.
// cure: `compile(layer, 128, {.threads = 2})`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  compile(layer, 128, {.threads = 2});
  compile(layer, 128, {});
#ifdef FMOE_MISUSE
  compile(layer, 128, {.thread = 2});
#endif
}
