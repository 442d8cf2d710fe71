// SPDX-License-Identifier: MIT
// Prints the plan of a sum, which names the instruction set of the kernels.
#include <array>
#include <cstdio>

#include <fmoe/explain.hpp>
#include <fmoe/mxd.hpp>

fmoe::tensor<double, 1> doubled(const fmoe::tensor<double, 1>& x);

int main() try {
  const fmoe::tensor<double, 1> x({2}, std::array{3., 4.});
  const auto here = fmoe::evaluate(x + x), there = doubled(x);
  std::printf("%g %g, %g %g\n%s\n", here(0), here(1), there(0), there(1),
              fmoe::explain(x + x).text.c_str());
  return here(0) == 6 && here(1) == 8 && there(0) == 6 && there(1) == 8 ? 0 : 1;
} catch (
    const fmoe::value_error& e) {  // thrown by what is compiled for a level, or by the choice of it
  std::puts(e.what());
  return 2;
}
