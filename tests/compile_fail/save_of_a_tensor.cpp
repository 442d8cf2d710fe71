// SPDX-License-Identifier: MIT
// expect: save writes layers; an array is fmoe::io::safetensors::write(file, {{name, x}})
// cause: The type is not a layer: it does not list the names of its weights.
// cure: Write the array with its name.
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
