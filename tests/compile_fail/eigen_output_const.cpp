// SPDX-License-Identifier: MIT
// expect: forward writes an output of the layer's arithmetic type that is not const
// cause: The output is read only.
// cure: Map memory that may be written.
#include <fmoe/eigen.hpp>
#include <fmoe/mxd.hpp>

int main() {
  const auto forward = fmoe::compile(fmoe::mxd<>{}, 4);
  Eigen::MatrixXf x(4, 8);
  float y[12];
  forward(x, Eigen::Map<Eigen::MatrixXf>(y, 4, 3));
#ifdef FMOE_MISUSE
  forward(x, Eigen::Map<const Eigen::MatrixXf>(y, 4, 3));
#endif
}
