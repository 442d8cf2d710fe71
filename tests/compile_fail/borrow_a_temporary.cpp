// SPDX-License-Identifier: MIT
// expect: deleted function
#include <array>

#include <fmoe/tensor.hpp>

using namespace fmoe;

int main() {
  std::array<float, 6> elements{};
  borrow(elements, std::array<extent, 2>{2, 3});
#ifdef FMOE_MISUSE
  borrow(std::array<float, 6>{}, std::array<extent, 2>{2, 3});
#endif
}
