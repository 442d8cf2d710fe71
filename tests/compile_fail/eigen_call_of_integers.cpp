// SPDX-License-Identifier: MIT
// expect: forward takes arrays of float, double, fmoe::bf16 or fmoe::f16
// cause: A compiled layer reads floating-point numbers.
// cure: Cast: `x.cast<float>()`.
#include <fmoe/eigen.hpp>
#include <fmoe/mxd.hpp>

int main() {
  const auto forward = fmoe::compile(fmoe::mxd<>{}, 4);
  Eigen::MatrixXf x(4, 8), y(4, 3);
  forward(x, y);
#ifdef FMOE_MISUSE
  forward(Eigen::MatrixXi(4, 8), y);
#endif
}
