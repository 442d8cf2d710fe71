// SPDX-License-Identifier: MIT
// expect: borrow: an array is of float, double, fmoe::bf16 or fmoe::f16: cast integers first
// cause: The container has integers, and nothing is converted in place.
// cure: Copy the numbers into a vector of floats, and borrow that.
#include <fmoe/tensor.hpp>

#include <vector>

using namespace fmoe;

int main() {
  std::vector<float> numbers(6);
  borrow(numbers, {2, 3});
  std::vector<int> integers(6);
#ifdef FMOE_MISUSE
  const auto rows = borrow(integers, {2, 3});
#endif
}
