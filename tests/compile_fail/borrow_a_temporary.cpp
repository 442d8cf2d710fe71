// SPDX-License-Identifier: MIT
// expect: borrow: the elements belong to a temporary, which ends before the tensor: name it, or copy it by tensor<float, 2>(shape, values)
// cause: borrow shares elements, and the elements of a temporary are gone at the end of the line.
// cure: Keep the container in a variable, or copy: `tensor<float, 2>(shape, values)`.
#include <array>

#include <fmoe/tensor.hpp>

using namespace fmoe;

int main() {
  std::array<float, 6> elements{};
  borrow(elements, {2, 3});
#ifdef FMOE_MISUSE
  borrow(std::array<float, 6>{}, {2, 3});
#endif
}
