// SPDX-License-Identifier: MIT
// expect: concat: all operands have the same rank
#include <fmoe/expr/concat.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  const tensor<float, 1> v({8});
  concat<1>(x, x);
  concat<0>(v, v);
#ifdef FMOE_MISUSE
  concat<1>(x, v);
#endif
}
