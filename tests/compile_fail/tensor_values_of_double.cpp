// SPDX-License-Identifier: MIT
// expect: fmoe::tensor: the values are a span, array or vector of the tensor's own type
// cause: The values have another element type, and fmoe rounds nothing unless you ask for it.
// cure: Convert them first, or make a tensor of their type.
#include <vector>

#include <fmoe/tensor.hpp>

using namespace fmoe;

int main() {
  const std::vector<float> floats(6);
  const std::vector<double> doubles(6);
  tensor<float, 2> good({2, 3}, floats);
#ifdef FMOE_MISUSE
  tensor<float, 2> x({2, 3}, doubles);
#endif
}
