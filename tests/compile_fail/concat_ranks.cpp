// SPDX-License-Identifier: MIT
// expect: concat: all operands have the same rank
// cause: The operands have different numbers of axes.
// cure: Bring them to the same rank first, for example by an einsum.
#include <fmoe/expr/concat.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  const tensor<float, 1> v({8});
  concat<1>(x, x);
#ifdef FMOE_MISUSE
  concat<1>(x, v);
#endif
}
