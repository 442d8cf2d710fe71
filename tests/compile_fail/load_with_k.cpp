// SPDX-License-Identifier: MIT
// expect: load: K is .active, as in fmoe::load<fmoe::mxd<>>(file, {.active = 32})
// cause: The option has the name of the layer's member, which is `active`.
// cure: `load<mxd<>>(file, {.active = 32})`.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  load<mxd<>>("mxd.safetensors", {.active = 32});
  load<mxd<>>("mxd.safetensors", {});
#ifdef FMOE_MISUSE
  load<mxd<>>("mxd.safetensors", {.K = 32});
#endif
}
