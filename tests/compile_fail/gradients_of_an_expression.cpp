// SPDX-License-Identifier: MIT
// expect: compile_gradients takes a layer that lists its parameters in released
// cause: A function, or a layer without `released`, does not tell what its parameters are.
// cure: Write `released` for the layer, or take `gradient(y, parameter, dy)` of each parameter.
#include <fmoe/gradients.hpp>

using namespace fmoe;

int main() {
#ifdef FMOE_MISUSE
  compile_gradients([](const auto& x) { return relu(x); }, 16);
#endif
}
