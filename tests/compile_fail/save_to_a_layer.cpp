// SPDX-License-Identifier: MIT
// expect: save: the layer comes before the file, as in fmoe::save(layer, file)
// cause: The arguments are in the order of `load`.
// cure: Name the layer first: `save(layer, "mxd.safetensors")`.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  save(layer, "mxd.safetensors");
#ifdef FMOE_MISUSE
  save("mxd.safetensors", layer);
#endif
}
