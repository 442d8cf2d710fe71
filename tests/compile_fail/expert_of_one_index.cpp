// SPDX-License-Identifier: MIT
// expect: expert: one index for each level
// cause: An expert of a hierarchy has an index in each level, and another number of indices is given.
// cure: Pass as many indices as the layer has levels: `layer.expert(1, 2)`.
#include <fmoe/mumoe.hpp>

using namespace fmoe;

int main() {
  const cp_mumoe<2> layer;
#ifdef FMOE_MISUSE
  layer.expert(1);
#endif
}
