// SPDX-License-Identifier: MIT
#include <array>
#include <cstdio>

#include <fmoe/mxd.hpp>

#if defined(XSIMD_HPP)
#error "the static library leaves the kernels in each program"
#endif

int main() {
  const fmoe::tensor<double, 1> x({2}, std::array{3., 4.});
  const auto y = fmoe::evaluate(x + x);
  std::printf("%g %g\n", y(0), y(1));
  return y(0) == 6 && y(1) == 8 ? 0 : 1;
}
