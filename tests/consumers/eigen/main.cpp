// SPDX-License-Identifier: MIT
// A product of two Eigen matrices where they lie, against Eigen's own.
#include <cstdio>

#include <Eigen/Dense>
#include <fmoe/evaluate.hpp>
#if __has_include(<fmoe/eigen.hpp>)
#include <fmoe/eigen.hpp>
#endif

int main() {
  using shape = std::array<fmoe::extent, 2>;
  using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  matrix x{{1, 2}}, w{{1, 2, 3}, {4, 5, 6}};
  const std::span x_elements(x.data(), 2), w_elements(w.data(), 6);
  const auto y = fmoe::evaluate(
      fmoe::einsum<"ti,io->to">(fmoe::borrow(x_elements, shape{1, 2}), fmoe::borrow(w_elements, shape{2, 3})));
  std::printf("x w: %g %g %g\n", y(0, 0), y(0, 1), y(0, 2));
  return Eigen::Map<const matrix>(y.data(), 1, 3) == x * w ? 0 : 1;
}
