// SPDX-License-Identifier: MIT
// Multiplies two matrices on a GPU, or on emulated blocks, with the result in the GPU's memory.
#include <cstdio>

#include <fmoe/compile.hpp>
#include <fmoe/cuda.hpp>

int main() {
  const auto gpu = fmoe::cuda::gpu_or_emulated();
  fmoe::parameter<float, 2> w({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto forward =
      fmoe::compile([&](const auto& x) { return fmoe::einsum<"ti,io->to">(x, w); }, 1, {.on = gpu});
  const fmoe::tensor<float, 2> x({1, 2}, {1, 2});
  fmoe::cuda::tensor<float, 2> y({1, 3}, gpu);
  forward(x, y);
  const fmoe::tensor<float, 2> made = y.to_host();
  std::printf("%s, x w: %g %g %g\n", std::string(y.place()).c_str(), made(0, 0), made(0, 1),
              made(0, 2));
  return made(0, 0) == 9 && made(0, 1) == 12 && made(0, 2) == 15 ? 0 : 1;
}
