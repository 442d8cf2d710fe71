// SPDX-License-Identifier: MIT
// Narrows a row of numbers to integers of 16 bits, and bounds what is lost. docs/performance.md
// proves the bounds.
#pragma once

#include <limits>

#include <fmoe/backend/cpu/kernels/norm.hpp>

namespace fmoe::cpu {

// Of a row v and its narrowed form v^ = scale q. Neither norm is less than the true one.
struct narrowing {
  static constexpr float most_norm = 0x1p62f;  // beyond it a product of two norms might overflow

  float scale = 1, norm = 0, lost = 0;  // |v| and |v - v^|

  bool is_usual() const { return norm < most_norm; }  // false also for NaN and infinity
};

// Writes q, n integers and zeros up to a whole vector of floats; all are 0 if v is not usual. No
// integer is -32768, and the product of two rows q is less than 2^31.
template <class Arch>
narrowing narrow(const float* v, extent n, float* to) {
  constexpr extent width = lanes<float, Arch>;
  constexpr double up = 1 + 0x1p-20, unit = 0x1p-24;
  constexpr float least = std::numeric_limits<float>::min();  // a subnormal is rounded by more
  const double norm = std::sqrt(sum_of_squares<float, Arch>(v, n));
  narrowing r{.norm = static_cast<float>(norm * up) + least};
  if (!r.is_usual()) {
    std::fill_n(to, round_up(n, width) / 2, 0.f);
    return r;
  }
  const auto part = [&](extent i) { return load_part<float, Arch>(v + i, std::min(width, n - i)); };
  vec<float, Arch> most(0.f), lost(0.f);
  for (extent i = 0; i < n; i += width) most = larger(abs(part(i)), most);
  const auto highest = static_cast<double>(greatest<float, Arch>(most));
  r.scale = std::max(least, static_cast<float>(std::max(norm / 45000, highest / 32767) * up));
  const vec<float, Arch> inverse(1 / r.scale), rounder(0x1.8p23f);
  for (extent i = 0; i < n; i += width) {
    const auto x = part(i) * inverse, q = (x + rounder) - rounder;
    lost = fmadd(x - q, x - q, lost);
    store_integers(to + i / 2, q);
  }
  const auto rounded = std::sqrt(static_cast<double>(sum<float, Arch>(lost)));
  const double roundings = 1 + static_cast<double>(n + 16) * unit;
  r.lost = static_cast<float>(
               (static_cast<double>(r.scale) * rounded * roundings + 4 * unit * norm) * up) +
           least;
  return r;
}

}  // namespace fmoe::cpu
