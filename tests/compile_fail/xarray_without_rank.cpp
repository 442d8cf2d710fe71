// SPDX-License-Identifier: MIT
// expect: this array's type does not tell its rank: to_tensor<2>(x) or borrow<2>(x) does
#include <fmoe/expr/pointwise.hpp>
#include <fmoe/xtensor.hpp>

int main() {
  const xt::xarray<float> x;
  fmoe::relu(fmoe::to_tensor<2>(x));
#ifdef FMOE_MISUSE
  fmoe::relu(x);
#endif
}
