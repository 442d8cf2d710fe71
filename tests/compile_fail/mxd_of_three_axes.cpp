// SPDX-License-Identifier: MIT
// expect: a layer takes one tensor or expression of two axes, [token, input], or an array of another library with <fmoe/eigen.hpp> or <fmoe/xtensor.hpp>
// cause: The input has a batch axis before the tokens.
// cure: Fold the leading axes: `layer(flattened(x))` of `<fmoe/arrays/viewed.hpp>`; a compiled call takes any number of leading axes.
#include <fmoe/arrays/viewed.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 3> x({2, 4, 8});
  layer(flattened(x));
#ifdef FMOE_MISUSE
  layer(x);
#endif
}
