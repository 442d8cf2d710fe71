// SPDX-License-Identifier: MIT
// expect: rewritten: write rewritten(layer, head, mean, lambda)
// cause: There are more or fewer arguments than a head, the mean coefficients and a factor.
// cure: Pass the factor by which the head is raised.
#include <fmoe/edit.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer{.gate = tensor<float, 2>({8, 5}), .decoder = tensor<float, 2>({16, 3})};
  const std::vector<float> mean(5);
#ifdef FMOE_MISUSE
  rewritten(layer, 0, mean);
#endif
}
