// SPDX-License-Identifier: MIT
// expect: load: the layer has no function released(layer, visit), which names its weights
// cause: The type has no function `released(layer, visit)`, so that its weights have no names.
// cure: Give it one, as the page about adding a layer shows.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

struct linear {
  parameter<float, 2> weight;  // i o
};

int main() {
  auto layer = load<mxd<>>("mxd.safetensors");
#ifdef FMOE_MISUSE
  auto other = load<linear>("linear.safetensors");
#endif
}
