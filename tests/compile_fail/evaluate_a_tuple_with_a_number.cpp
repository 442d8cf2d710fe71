// SPDX-License-Identifier: MIT
// expect: a tuple of results: each is a tensor or an expression
// cause: A member of the tuple is a number. The compiler names the member, counted from 0: `Member = 1`.
// cure: Leave it out, or make it a tensor.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  evaluate(std::tuple(relu(x), x));
#ifdef FMOE_MISUSE
  evaluate(std::tuple(relu(x), 3));
#endif
}
