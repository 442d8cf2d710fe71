// SPDX-License-Identifier: MIT
#include <array>
#include <cstdio>

#include <fmoe/mxd.hpp>
#if defined(WITH_MPI)
#include <fmoe/mpi.hpp>
#endif

int main() {
  const fmoe::tensor<float, 1> x({2}, std::array{3.f, 4.f});
  const auto y = fmoe::evaluate(2 * x);
  std::printf("%g %g\n", static_cast<double>(y(0)), static_cast<double>(y(1)));
  return y(0) == 6 && y(1) == 8 ? 0 : 1;
}
