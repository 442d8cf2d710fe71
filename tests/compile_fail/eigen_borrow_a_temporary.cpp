// SPDX-License-Identifier: MIT
// expect: borrow: a temporary ends before the tensor on its elements: name it, or copy it by to_tensor
// cause: The array ends with the statement, but the tensor would go on using its elements.
// cure: Name the array first, or copy it: `to_tensor(x)`.
#include <fmoe/eigen.hpp>

int main() {
  const Eigen::VectorXf x = Eigen::VectorXf::Zero(4);
  fmoe::borrow(x);
#ifdef FMOE_MISUSE
  fmoe::borrow(Eigen::VectorXf(4));
#endif
}
