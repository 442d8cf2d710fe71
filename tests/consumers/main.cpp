// SPDX-License-Identifier: MIT
// Most consumers build a program like this: an MxD of two experts. Its numbers are small integers,
// so every sum is exact.
#include <array>
#include <cstdio>

#include <fmoe/mxd.hpp>

int main() {
  using matrix = fmoe::tensor<float, 2>;
  fmoe::mxd<> layer;
  layer.encoder = matrix({2, 3}, std::array{1.f, 0.f, -1.f, 0.f, 1.f, 2.f});
  layer.gate = matrix({2, 2}, std::array{1.f, 0.f, 0.f, 1.f});
  layer.scales = matrix({2, 2}, std::array{1.f, 2.f, 3.f, 4.f});
  layer.decoder = matrix({3, 2}, std::array{1.f, 2.f, 3.f, 4.f, 5.f, 6.f});
  layer.active = 1;
  layer.activation = fmoe::pointwise::relu;

  const matrix x({1, 2},
                 std::array{1.f, 2.f});  // z = (1, 2, 3), z D = (22, 28), a = (0, 2), a C = (6, 8)
  const auto y = fmoe::evaluate(layer(x));
  std::printf("MxD: %g %g\n", y(0, 0), y(0, 1));
  return y(0, 0) == 132 && y(0, 1) == 224 ? 0 : 1;
}
