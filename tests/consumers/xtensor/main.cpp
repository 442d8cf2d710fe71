// SPDX-License-Identifier: MIT
// Writes the product of two xtensors into a third, and compares it with sums that are written out.
#include <cstdio>

#include <fmoe/evaluate.hpp>
#include <fmoe/xtensor.hpp>

int main() {
  const xt::xtensor<float, 2> x{{1, 2}}, w{{1, 2, 3}, {4, 5, 6}};
  xt::xtensor<float, 2> y({1, 3});
  fmoe::evaluate(fmoe::einsum<"ti,io->to">(x, w), y);
  std::printf("x w: %g %g %g\n", y(0, 0), y(0, 1), y(0, 2));
  bool same = true;
  for (std::size_t o = 0; o < 3; ++o)
    same = same && y(0, o) == x(0, 0) * w(0, o) + x(0, 1) * w(1, o);
  return same ? 0 : 1;
}
