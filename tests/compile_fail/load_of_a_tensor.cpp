// SPDX-License-Identifier: MIT
// expect: load makes layers; an array is fmoe::io::safetensors::read(file).get<float, 2>(name)
// cause: The type is not a layer: it does not list the names of its weights.
// cure: Load a layer, or take one array by its name.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  auto layer = load<mxd<>>("mxd.safetensors");
#ifdef FMOE_MISUSE
  auto other = load<tensor<float, 2>>("mxd.safetensors");
#endif
}
