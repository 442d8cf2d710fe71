// SPDX-License-Identifier: MIT
// expect: load: a layer's type has brackets, as in fmoe::load<fmoe::mxd<>>(file)
// cause: A layer is a template, even if all of its template parameters have defaults.
// cure: Write the brackets: `load<mxd<>>(file)`.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  auto layer = load<mxd<>>("mxd.safetensors");
#ifdef FMOE_MISUSE
  auto other = load<mxd>("mxd.safetensors");
#endif
}
