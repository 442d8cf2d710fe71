// SPDX-License-Identifier: MIT
// expect: load: say the layer's type, as in fmoe::load<fmoe::mxd<>>(file)
// cause: A file does not tell the compiler which layer it holds.
// cure: Say the type: `load<mxd<>>(file)`.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  auto layer = load<mxd<>>("mxd.safetensors");
#ifdef FMOE_MISUSE
  mxd<> other = load("mxd.safetensors");
#endif
}
