// SPDX-License-Identifier: MIT
// alpha-entmax (Peters, Niculae and Martins 2019): y[n] = [(alpha - 1)(x[n] - max x) - tau]_+^(1 /
// (alpha - 1)), where tau makes the sum 1. A row with a NaN or +infinity, or a row of -infinity
// only, becomes NaN; other rows are not affected.
#pragma once

#include <array>
#include <cmath>

#include <fmoe/backend/cpu/kernels/softmax.hpp>

namespace fmoe::cpu {

// Returns the sum of [z - tau]_+^Power, and the sum of [z - tau]_+^(Power - 1), each in two chains
// of additions.
template <class T, class Arch, int Power>
std::pair<T, T> entmax_sums(const T* z, extent n, T tau) noexcept {
  using v = vec<T, Arch>;
  constexpr extent width = lanes<T, Arch>, vectors = vectors_of_sum<Arch>;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const v start(tau), zero(T(0)), one(T(1));
  std::array<v, vectors> totals[2], slopes[2];
  for (extent chain = 0; chain < 2; ++chain) {
    totals[chain].fill(zero);
    slopes[chain].fill(zero);
  }
  const auto add = [&](const v& some, v& total, v& slope) FMOE_ALWAYS_INLINE_LAMBDA {
    const v over = some - start;
    const v d = select(over <= zero, zero, over);
    if constexpr (Power == 2) total = fmadd(d, d, total);
    else total = total + d;
    slope = slope + (Power == 2 ? d : select(over <= zero, zero, one));
  };
  extent i = 0;
  for (; i + 2 * vectors * width <= n; i += 2 * vectors * width) {
    FMOE_ROUNDS(2)
    for (extent chain = 0; chain < 2; ++chain) {
      FMOE_ROUNDS(2)
      for (extent at = 0; at < vectors; ++at)
        add(load<T, Arch>(z + i + (chain * vectors + at) * width), totals[chain][at],
            slopes[chain][at]);
    }
  }
  for (extent at = 0; i < n; i += width, at = (at + 1) % vectors)
    add(load_part<T, Arch>(z + i, std::min(width, n - i), -infinity), totals[0][at], slopes[0][at]);
  for (extent at = 0; at < vectors; ++at) {
    totals[0][at] = totals[0][at] + totals[1][at];
    slopes[0][at] = slopes[0][at] + slopes[1][at];
  }
  return {sum<T, Arch>(totals[0]), sum<T, Arch>(slopes[0])};
}

// For alpha 1.5 (Power 2) and 2 (Power 1). The sum is convex, falls with tau, and is at least 1 at
// tau = -1. So Newton's steps from there only rise, but rounding can make one too long: then steps
// fall and rise, each shorter than the one before, until the arithmetic type cannot distinguish two
// of them.
template <class T, class Arch, int Power>
void entmax_by_newton(const T* x, T* y, extent n, T top) noexcept {
  using v = vec<T, Arch>;
  constexpr extent width = lanes<T, Arch>;
  for (extent i = 0; i < n; i += width) {  // z is stored in y
    const extent part = std::min(width, n - i);
    store_part<T, Arch>(y + i, part,
                        (load_part<T, Arch>(x + i, part) - v(top)) * v(T(1) / T(Power)));
  }
  T tau = -1, last = 0;
  bool only_rose = true;
  for (int count = 0; count < 64; ++count) {
    const auto [total, slope] = entmax_sums<T, Arch, Power>(y, n, tau);
    const T move = (total - T(1)) / (T(Power) * slope);
    only_rose = only_rose && move > 0;
    const bool is_shorter = std::abs(move) < last;
    if (tau + move == tau || !(only_rose || is_shorter)) break;
    tau += move;
    last = std::abs(move);
  }
  for (extent i = 0; i < n; i += width) {
    const extent part = std::min(width, n - i);
    const v over = load_part<T, Arch>(y + i, part) - v(tau),
            d = select(over <= v(T(0)), v(T(0)), over);
    store_part<T, Arch>(y + i, part, Power == 2 ? d * d : d);
  }
}

// For any alpha > 1, by bisection in double: the plain form, which is slow.
template <class T, class Arch>
void entmax_by_bisection(const T* x, T* y, extent n, T top, double alpha) noexcept {
  constexpr extent width = lanes<double, Arch>;
  const double scale = alpha - 1, power = 1 / scale;
  // [scale (x[i] - top) - tau]_+^power for the entries from i on that a vector holds, else 0.
  const auto terms = [&](extent i, double tau) {
    std::array<double, width> t{};
    for (extent k = 0; k < std::min(width, n - i); ++k)
      t[k] = scale * (static_cast<double>(x[i + k]) - static_cast<double>(top)) - tau;
    store<double, Arch>(t.data(),
                        vector_functions<double, Arch>::template evaluate<pointwise::power>(
                            load<double, Arch>(t.data()), power));
    return t;
  };
  const auto total = [&](double tau) {
    double s = 0;
    for (extent i = 0; i < n; i += width)
      for (const double t : terms(i, tau)) s += t;
    return s;
  };
  double low = -1, high = 0;
  for (int count = 0; count < 80; ++count) {
    const double middle = (low + high) / 2;
    (total(middle) >= 1 ? low : high) = middle;
  }
  const double whole = total(low);
  for (extent i = 0; i < n; i += width) {
    const auto t = terms(i, low);
    for (extent k = 0; k < std::min(width, n - i); ++k) y[i + k] = static_cast<T>(t[k] / whole);
  }
}

// May be in place.
template <class T, class Arch>
void entmax(const T* x, T* y, extent n, double alpha) noexcept {
  const T top = greatest_of<T, Arch>(x, n);
  if (!(std::abs(top) < std::numeric_limits<T>::infinity()))
    std::fill_n(y, n, std::numeric_limits<T>::quiet_NaN());
  else if (alpha == 1.5) entmax_by_newton<T, Arch, 2>(x, y, n, top);
  else if (alpha == 2) entmax_by_newton<T, Arch, 1>(x, y, n, top);
  else entmax_by_bisection<T, Arch>(x, y, n, top, alpha);
}

}  // namespace fmoe::cpu
