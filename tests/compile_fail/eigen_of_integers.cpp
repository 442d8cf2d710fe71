// SPDX-License-Identifier: MIT
// expect: an array is of float, double, fmoe::bf16 or fmoe::f16: cast integers first
// cause: An operand stores integers.
// cure: Cast: `x.cast<float>()`.
#include <fmoe/eigen.hpp>
#include <fmoe/expr/einsum.hpp>

using namespace fmoe;

int main() {
  const Eigen::MatrixXi x = Eigen::MatrixXi::Zero(4, 8);
  const Eigen::MatrixXf w = Eigen::MatrixXf::Zero(8, 3);
  einsum<"ti,io->to">(x.cast<float>(), w);
#ifdef FMOE_MISUSE
  einsum<"ti,io->to">(x, w);
#endif
}
