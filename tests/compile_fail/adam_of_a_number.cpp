// SPDX-License-Identifier: MIT
// expect: adam and adamw: settings are named, as in fmoe::adam({.rate = 1e-3})
// cause: The rate is given as a number.
// cure: Name it: `adam optimizer({.rate = 1e-3})`.
#include <fmoe/optimizers.hpp>

using namespace fmoe;

int main() {
  adam optimizer({.rate = 1e-3});
#ifdef FMOE_MISUSE
  adam other(1e-3);
#endif
}
