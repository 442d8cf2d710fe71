// SPDX-License-Identifier: MIT
// expect: borrow: a temporary ends before the tensor on its elements: name it, or copy it by to_tensor
#include <fmoe/eigen.hpp>

int main() {
  const Eigen::VectorXf x = Eigen::VectorXf::Zero(4);
  fmoe::borrow(x);
#ifdef FMOE_MISUSE
  fmoe::borrow(Eigen::VectorXf(4));
#endif
}
