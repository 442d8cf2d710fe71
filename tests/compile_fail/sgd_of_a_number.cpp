// SPDX-License-Identifier: MIT
// expect: sgd: settings are named, as in fmoe::sgd({.rate = 1e-3})
// cause: The rate is given as a number.
// cure: Name it: `sgd optimizer({.rate = 1e-3})`.
#include <fmoe/optimizers.hpp>

using namespace fmoe;

int main() {
  sgd optimizer({.rate = 1e-3});
#ifdef FMOE_MISUSE
  sgd other(1e-3);
#endif
}
