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

// Narrows one row, whose integers may be written in parts.
template <class Arch>
class narrower {
 public:
  narrower() = default;
  narrower(const float* v, extent n)
      : v_(v),
        n_(n),
        norm_(std::sqrt(sum_of_squares<float, Arch>(v, n))),
        found_{.norm = static_cast<float>(norm_ * up) + least} {
    if (!found_.is_usual()) return;
    vec<float, Arch> most(0.f);
    for (extent i = 0; i < n; i += width) most = larger(abs(part(i)), most);
    const auto highest = static_cast<double>(greatest<float, Arch>(most));
    found_.scale =
        std::max(least, static_cast<float>(std::max(norm_ / 45000, highest / 32767) * up));
  }

  // Writes q from number `first` on, `count` integers and zeros up to a whole vector of floats; all
  // are 0 if v is not usual. Parts follow each other and end at whole vectors.
  void write(extent first, extent count, float* to) {
    if (!found_.is_usual()) {
      std::fill_n(to, round_up(count, width) / 2, 0.f);
      return;
    }
    const vec<float, Arch> inverse(1 / found_.scale), rounder(0x1.8p23f);
    vec<float, Arch> lost = load<float, Arch>(lost_);
    for (extent i = 0; i < count; i += width) {
      const auto x = part(first + i) * inverse, q = (x + rounder) - rounder;
      lost = fmadd(x - q, x - q, lost);
      store_integers(to + i / 2, q);
    }
    store<float, Arch>(lost_, lost);
  }

  // What is known when all is written.
  narrowing end() const {
    narrowing r = found_;
    if (!r.is_usual()) return r;
    const auto rounded = std::sqrt(static_cast<double>(sum<float, Arch>(load<float, Arch>(lost_))));
    const double roundings = 1 + static_cast<double>(n_ + 16) * unit;
    r.lost = static_cast<float>(
                 (static_cast<double>(r.scale) * rounded * roundings + 4 * unit * norm_) * up) +
             least;
    return r;
  }

 private:
  static constexpr extent width = lanes<float, Arch>;
  static constexpr double up = 1 + 0x1p-20, unit = 0x1p-24;
  static constexpr float least = std::numeric_limits<float>::min();  // subnormals are rounded by
                                                                     // more

  vec<float, Arch> part(extent i) const {
    return load_part<float, Arch>(v_ + i, std::min(width, n_ - i));
  }

  const float* v_ = nullptr;
  extent n_ = 0;
  double norm_ = 0;
  narrowing found_;
  float lost_[width] = {};  // the squares of what is lost, by lane
};

// Writes q, n integers and zeros up to a whole vector of floats; all are 0 if v is not usual. No
// integer is -32768, and the product of two rows q is less than 2^31.
template <class Arch>
narrowing narrow(const float* v, extent n, float* to) {
  narrower<Arch> row(v, n);
  row.write(0, n, to);
  return row.end();
}

}  // namespace fmoe::cpu
