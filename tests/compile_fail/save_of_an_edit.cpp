// SPDX-License-Identifier: MIT
// expect: save: a file holds weights and no edit: save the original layer, and edit it after load
// cause: An edited layer is the original one and functions of the program, which no file can hold.
// cure: Save the original layer, and edit it again after `load`; or set weights to 0, such as the rows of `scales` of ablated experts, and save that.
#include <fmoe/edit.hpp>
#include <fmoe/io/safetensors.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  save(layer, "mxd.safetensors");
#ifdef FMOE_MISUSE
  save(ablated(layer, {3}), "mxd.safetensors");
#endif
}
