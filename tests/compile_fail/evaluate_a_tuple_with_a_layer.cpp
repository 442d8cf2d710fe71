// SPDX-License-Identifier: MIT
// expect: a tuple of results: one is a layer that was not called: write layer(x)
// cause: A layer becomes an expression only when it is called. The compiler names the member, counted from 0: `Member = 1`.
// cure: Call it: `evaluate(std::tuple(relu(x), layer(x)))`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  const tensor<float, 2> x({4, 8});
  evaluate(std::tuple(relu(x), layer(x)));
#ifdef FMOE_MISUSE
  evaluate(std::tuple(relu(x), layer));
#endif
}
