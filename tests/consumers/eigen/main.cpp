// SPDX-License-Identifier: MIT
// Writes the product of two Eigen matrices into a third, and compares it with Eigen's own.
#include <cstdio>

#include <Eigen/Dense>

#include <fmoe/eigen.hpp>
#include <fmoe/evaluate.hpp>

int main() {
  const Eigen::MatrixXf x{{1, 2}}, w{{1, 2, 3}, {4, 5, 6}};
  Eigen::MatrixXf y(1, 3);
  fmoe::evaluate(fmoe::einsum<"ti,io->to">(x, w), y);
  std::printf("x w: %g %g %g\n", y(0, 0), y(0, 1), y(0, 2));
  return y == x * w ? 0 : 1;
}
