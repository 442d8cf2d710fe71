// SPDX-License-Identifier: MIT
// Norms of rows, and normalised rows. Sums are in double, in interleaved parts, so a row of float
// loses nothing.
#pragma once

#include <array>
#include <cmath>

#include <fmoe/backend/cpu/kernels/pointwise.hpp>

namespace fmoe::cpu {

// Returns the sum of f(x[i]).
template <class T, class Arch, class F>
double sum_in_double(const T* x, extent n, F f) noexcept {
  constexpr extent parts = 8, most = 4 * parts;  // four chains of additions for long rows
  std::array<double, most> sums{};
  extent i = 0;
  for (; i + most <= n; i += most) {
    FMOE_ROUNDS(32)
    for (extent k = 0; k < most; ++k) sums[k] += f(static_cast<double>(x[i + k]));
  }
  for (; i + parts <= n; i += parts)
    for (extent k = 0; k < parts; ++k) sums[k] += f(static_cast<double>(x[i + k]));
  for (extent k = 0; i < n; ++i, ++k) sums[k] += f(static_cast<double>(x[i]));
  for (extent half = most / 2; half > 0; half /= 2)
    for (extent k = 0; k < half; ++k) sums[k] += sums[k + half];
  return sums[0];
}

template <class T, class Arch>
double mean(const T* x, extent n) noexcept {
  return sum_in_double<T, Arch>(x, n, [](double v) { return v; }) / static_cast<double>(n);
}

template <class T, class Arch>
double sum_of_squares(const T* x, extent n) noexcept {
  return sum_in_double<T, Arch>(x, n, [](double v) { return v * v; });
}

// Returns a norm or the mean of the row, and NaN if an entry is NaN.
template <class T, class Arch>
T norm(row_norm which, const T* x, extent n) noexcept {
  if (which == row_norm::l1)
    return static_cast<T>(sum_in_double<T, Arch>(x, n, [](double v) { return std::abs(v); }));
  if (which == row_norm::l2) return static_cast<T>(std::sqrt(sum_of_squares<T, Arch>(x, n)));
  if (which == row_norm::mean) return static_cast<T>(mean<T, Arch>(x, n));
  T most = 0;
  for (extent i = 0; i < n && most == most; ++i)
    if (!(std::abs(x[i]) <= most)) most = std::abs(x[i]);
  return most;
}

// y[i] = (x[i] - shift) * factor in double, rounded once. May be in place.
template <class T, class Arch>
void scale_row(const T* x, T* y, extent n, double shift, double factor) noexcept {
  for (extent i = 0; i < n; ++i)
    y[i] = static_cast<T>((static_cast<double>(x[i]) - shift) * factor);
}

template <class T, class Arch>
void layer_norm(const T* x, T* y, extent n, double epsilon) noexcept {
  const double middle = mean<T, Arch>(x, n);
  const double squares =
      sum_in_double<T, Arch>(x, n, [middle](double v) { return (v - middle) * (v - middle); });
  scale_row<T, Arch>(x, y, n, middle, 1 / std::sqrt(squares / static_cast<double>(n) + epsilon));
}

template <class T, class Arch>
void rms_norm(const T* x, T* y, extent n, double epsilon) noexcept {
  const double squares = sum_of_squares<T, Arch>(x, n);
  scale_row<T, Arch>(x, y, n, 0, 1 / std::sqrt(squares / static_cast<double>(n) + epsilon));
}

template <class T, class Arch>
void clamped_rms_norm(const T* x, T* y, extent n, double epsilon) noexcept {
  const double length = std::sqrt(sum_of_squares<T, Arch>(x, n));
  scale_row<T, Arch>(x, y, n, 0,
                     std::sqrt(static_cast<double>(n)) / (length < epsilon ? epsilon : length));
}

}  // namespace fmoe::cpu
