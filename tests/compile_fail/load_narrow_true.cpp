// SPDX-License-Identifier: MIT
// expect: load: {.narrow = fmoe::io::narrow} allows rounding
// cause: The option `narrow` is no bool.
// cure: `load<mxd<>>(file, {.narrow = io::narrow})`.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  load<mxd<>>("mxd.safetensors", {.narrow = io::narrow});
#ifdef FMOE_MISUSE
  load<mxd<>>("mxd.safetensors", {.narrow = true});
#endif
}
