// SPDX-License-Identifier: MIT
// expect: evaluate: the option is .threads, as in fmoe::evaluate(layer(x), {.threads = 2})
// cause: The option is misspelt.
// cure: `evaluate(layer(x), {.threads = 2})`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
  evaluate(layer(x), {.threads = 2});
  evaluate(std::tuple(layer(x), x), {});
#ifdef FMOE_MISUSE
  evaluate(layer(x), {.num_threads = 2});
#endif
}
