// SPDX-License-Identifier: MIT
// expect: borrow: the elements are a temporary's, which ends before the tensor does
// cause: borrow shares elements, and those of a temporary are gone at the end of the line.
// cure: Keep the container in a variable, or copy: `tensor<float, 2>(shape, values)`.
#include <array>

#include <fmoe/tensor.hpp>

using namespace fmoe;

int main() {
  std::array<float, 6> elements{};
  borrow(elements, std::array<std::size_t, 2>{2, 3});
#ifdef FMOE_MISUSE
  borrow(std::array<float, 6>{}, std::array<std::size_t, 2>{2, 3});
#endif
}
