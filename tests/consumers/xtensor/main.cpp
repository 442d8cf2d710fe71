// SPDX-License-Identifier: MIT
// A product of two xtensors where they lie, against the sums written out.
#include <cstdio>

#if __has_include(<xtensor/containers/xtensor.hpp>)  // from 0.26 on
#include <xtensor/containers/xtensor.hpp>
#else
#include <xtensor/xtensor.hpp>
#endif
#include <fmoe/evaluate.hpp>
#if __has_include(<fmoe/xtensor.hpp>)
#include <fmoe/xtensor.hpp>
#endif

int main() {
  using shape = std::array<fmoe::extent, 2>;
  xt::xtensor<float, 2> x{{1, 2}}, w{{1, 2, 3}, {4, 5, 6}};
  const auto y = fmoe::evaluate(
      fmoe::einsum<"ti,io->to">(fmoe::borrow(x.storage(), shape{1, 2}), fmoe::borrow(w.storage(), shape{2, 3})));
  std::printf("x w: %g %g %g\n", y(0, 0), y(0, 1), y(0, 2));
  bool same = true;
  for (fmoe::extent o = 0; o < 3; ++o) same = same && y(0, o) == x(0, 0) * w(0, o) + x(0, 1) * w(1, o);
  return same ? 0 : 1;
}
