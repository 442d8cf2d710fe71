// SPDX-License-Identifier: MIT
// expect: this array's type does not tell its rank: to_tensor<2>(x) or borrow<2>(x) does
// cause: The number of axes of an `xarray` is known only when the program runs.
// cure: Say the rank: `borrow<2>(x)`, or `to_tensor<2>(x)` for a copy.
#include <fmoe/expr/pointwise.hpp>
#include <fmoe/xtensor.hpp>

int main() {
  const xt::xarray<float> x;
  fmoe::relu(fmoe::to_tensor<2>(x));
#ifdef FMOE_MISUSE
  fmoe::relu(x);
#endif
}
