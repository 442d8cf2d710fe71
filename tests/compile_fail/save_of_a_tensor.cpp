// SPDX-License-Identifier: MIT
// expect: save writes layers; an array is fmoe::io::safetensors::write(file, {{name, x}})
// cause: The type is no layer: it lists no names of weights.
// cure: Write the array by its name.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
  save(layer, "mxd.safetensors");
  io::safetensors::write("x.safetensors", {{"x", x}});
#ifdef FMOE_MISUSE
  save(x, "x.safetensors");
#endif
}
