// SPDX-License-Identifier: MIT
// expect: load: options are named, as in fmoe::load<fmoe::mxd<>>(file, {.active = 32})
// cause: The second argument is the number K itself.
// cure: Name the option: `load<mxd<>>(file, {.active = 32})`.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  auto layer = load<mxd<>>("mxd.safetensors");
#ifdef FMOE_MISUSE
  auto other = load<mxd<>>("mxd.safetensors", 32);
#endif
}
