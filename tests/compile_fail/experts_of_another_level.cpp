// SPDX-License-Identifier: MIT
// expect: experts take the input [token, input], then the coefficients [token, expert] of each level
// cause: Experts of two levels are called with the coefficients of one.
// cure: Pass the coefficients of each level; the first template argument says how many levels there are.
#include <fmoe/mumoe.hpp>

using namespace fmoe;

int main() {
  const cp_experts<2> experts;
  const tensor<float, 2> x({4, 8}), a({4, 5}), b({4, 6});
  experts(x, a, b);
#ifdef FMOE_MISUSE
  experts(x, a);
#endif
}
