// SPDX-License-Identifier: MIT
// Narrows a row of numbers to integers of 16 or 8 bits, and bounds what is lost.
// docs/screening.md proves the bounds.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include <fmoe/backend/cpu/kernels/norm.hpp>

namespace fmoe::cpu {

// Of a row v and its narrowed form v^ = scale q. Neither norm is less than the true one.
struct narrowing {
  static constexpr float most_norm = 0x1p62f;  // beyond it a product of two norms might overflow

  float scale = 1, norm = 0, lost = 0;  // |v| and |v - v^|

  bool is_usual() const { return norm < most_norm; }  // false also for NaN and infinity
};

// What a row is narrowed to. Halves are 16 bits in two integers of 8, the upper one times 256 plus
// the lower one (int8_quad).
enum class integer_form : std::uint8_t { int16, int16_in_halves, int8 };

// The greatest integer of a form. That of halves leaves room for a carry.
constexpr double greatest_of(integer_form form) {
  return form == integer_form::int8 ? 127 : form == integer_form::int16 ? 32767 : 32639;
}

// Narrows one row, whose integers may be written in parts.
template <class Arch>
class narrower {
 public:
  narrower() = default;
  narrower(const float* v, extent n, integer_form form)
      : v_(v),
        n_(n),
        form_(form),
        norm_(std::sqrt(sum_of_squares<float, Arch>(v, n))),
        found_{.norm = static_cast<float>(norm_ * up) + least} {
    if (!found_.is_usual()) return;
    vec<float, Arch> most(0.f);
    for (extent i = 0; i < n; i += width) most = larger(abs(part(i)), most);
    const auto highest = static_cast<double>(greatest<float, Arch>(most));
    found_.scale = std::max(
        least, static_cast<float>(std::max(norm_ / 45000, highest / greatest_of(form)) * up));
  }

  // Writes q from number `first` on, `count` integers and zeros up to a whole vector of floats, or
  // up to four integers of 8 bits; all are 0 if v is not usual. Parts follow each other and end at
  // whole vectors. Lower halves stand behind the upper ones of all of the row, which is one part.
  void write(extent first, extent count, float* to) {
    if (!found_.is_usual()) {
      const bool is_int16 = form_ == integer_form::int16, is_int8 = form_ == integer_form::int8;
      std::fill_n(to, is_int16 ? round_up(count, width) / 2 : quads(count) * (is_int8 ? 1 : 2),
                  0.f);
      return;
    }
    const vec<float, Arch> inverse(1 / found_.scale), rounder(0x1.8p23f), tie(0x1p-9f);
    vec<float, Arch> lost = load<float, Arch>(lost_);
    for (extent i = 0; i < count; i += width) {
      const auto x = part(first + i) * inverse, q = (x + rounder) - rounder;
      lost = fmadd(x - q, x - q, lost);
      if (form_ == integer_form::int16) {
        store_integers(to + i / 2, q);
      } else if (form_ == integer_form::int8) {
        store_bytes(q, count - i, to + i / 4);
      } else {  // the upper one is rounded, so that the lower one is between -128 and 127
        const auto upper = (fmadd(q, vec<float, Arch>(0x1p-8f), tie) + rounder) - rounder;
        store_bytes(upper, count - i, to + i / 4);
        store_bytes(fmadd(upper, vec<float, Arch>(-256.f), q), count - i,
                    to + quads(count) + i / 4);
      }
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

  static constexpr extent quads(extent count) { return divide_up(count, 4); }

  // Stores integral numbers as integers of 8 bits: `left` of them at most, and zeros up to a quad.
  static void store_bytes(const vec<float, Arch>& v, extent left, float* to) {
    auto* const bytes = reinterpret_cast<std::int8_t*>(to);
    if (left >= width) return cpu::store_bytes<Arch>(bytes, v);
    std::int8_t whole[width];
    cpu::store_bytes<Arch>(whole, v);
    std::memcpy(bytes, whole, 4 * quads(left));
  }

  vec<float, Arch> part(extent i) const {
    return load_part<float, Arch>(v_ + i, std::min(width, n_ - i));
  }

  const float* v_ = nullptr;
  extent n_ = 0;
  integer_form form_ = integer_form::int16;
  double norm_ = 0;
  narrowing found_;
  float lost_[width] = {};  // the squares of what is lost, by lane
};

// Writes q as narrower::write does, all of a row. No integer is -32768, none of 8 bits -128, and
// the product of two rows q is less than 2^31.
template <class Arch>
narrowing narrow(const float* v, extent n, float* to, integer_form form) {
  narrower<Arch> row(v, n, form);
  row.write(0, n, to);
  return row.end();
}

}  // namespace fmoe::cpu
