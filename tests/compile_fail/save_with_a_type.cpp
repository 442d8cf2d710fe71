// SPDX-License-Identifier: MIT
// expect: save: options are named, as in fmoe::save(layer, file, {.type = fmoe::dtype::bfloat16})
// cause: The third argument is the element type itself.
// cure: Name the option: `save(layer, file, {.type = dtype::bfloat16})`.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  save(layer, "mxd.safetensors", {.type = dtype::bfloat16});
#ifdef FMOE_MISUSE
  save(layer, "mxd.safetensors", dtype::bfloat16);
#endif
}
