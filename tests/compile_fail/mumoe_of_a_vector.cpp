// SPDX-License-Identifier: MIT
// expect: a layer takes one tensor or expression of two axes, [token, input], or an array of another library with <fmoe/eigen.hpp> or <fmoe/xtensor.hpp>
// cause: The input is a container, which has no shape.
// cure: Make a tensor from it: `layer(borrow(v, {4, 8}))`.
#include <vector>

#include <fmoe/mumoe.hpp>

using namespace fmoe;

int main() {
  const cp_mumoe<> layer;
  const std::vector<float> v(32);
  layer.gate;
#ifdef FMOE_MISUSE
  layer(v);
#endif
}
