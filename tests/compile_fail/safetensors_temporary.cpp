// SPDX-License-Identifier: MIT
// expect: io: the file is a temporary, and its arrays end with it
// cause: `arrays()` and `find()` point into the object that read returned, which nothing keeps.
// cure: Keep what read returns in a variable.
#include <fmoe/io/safetensors.hpp>

using namespace fmoe;

int main() {
  const auto weights = io::safetensors::read("mxd.safetensors");
  for (const auto& array : weights.arrays()) array.name();
#ifdef FMOE_MISUSE
  for (const auto& array : io::safetensors::read("mxd.safetensors").arrays()) array.name();
#endif
}
