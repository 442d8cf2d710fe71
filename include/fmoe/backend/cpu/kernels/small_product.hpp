// SPDX-License-Identifier: MIT
// Products, sums and permutations of small tensors, as nest.hpp defines them and with its bits, in
// register tiles: several positions along one axis of the result by one or more vectors along its
// last axis, or along another one whose numbers are neighbours in an operand.
#pragma once

#include <array>

#include <fmoe/backend/cpu/kernels/nest.hpp>

namespace fmoe::cpu {

// A list of loops, at most one for each letter that can name an axis.
class loop_axes {
 public:
  loop_axes() = default;
  explicit loop_axes(std::span<const nest_axis> axes) {
    for (const nest_axis& x : axes) push(x);
  }
  void push(const nest_axis& x) { axes_[size_++] = x; }
  // Joins the axis to the last one if the two run like one axis.
  void join(const nest_axis& x) {
    if (x.length == 1) return;
    if (size_ != 0) {
      nest_axis& last = axes_[size_ - 1];
      const bool continues =
          last.a == x.a * x.length && last.b == x.b * x.length && last.c == x.c * x.length;
      if (continues) {
        last = {last.length * x.length, x.a, x.b, x.c};
        return;
      }
    }
    push(x);
  }
  nest_axis take(extent at) {
    const nest_axis x = axes_[at];
    std::copy(axes_.begin() + at + 1, axes_.begin() + size_, axes_.begin() + at);
    --size_;
    return x;
  }
  extent size() const { return size_; }
  nest_axis& operator[](extent at) { return axes_[at]; }
  operator std::span<const nest_axis>() const { return {axes_.data(), size_}; }

 private:
  std::array<nest_axis, 52> axes_;
  extent size_ = 0;
};

// The strides of a register tile: for both summed axes, and for `rows`, the positions of the tile,
// `a` is the stride of the operand that has one number for a whole vector, and `b` that of the
// operand that has a vector.
struct product_tile {
  nest_axis rows, outer, inner;
};

// c[m, n] (+)= the sum of s[m] v[m, n], for `part` elements of the only vector, or for all of
// Vectors. Shared means that v is the same for all m.
template <class T, class Arch, extent Rows, extent Vectors, bool Shared>
void product_kernel(const product_tile& p, const T* s, const T* v, T* c, extent part,
                    sum_into held) noexcept {
  constexpr extent lane = lanes<T, Arch>;
  const auto read = [&](const T* from) FMOE_ALWAYS_INLINE_LAMBDA {
    if constexpr (Vectors == 1) return load_part<T, Arch>(from, part);
    else return load<T, Arch>(from);
  };
  vec<T, Arch> sums[Rows][Vectors];
  FMOE_ROUNDS(8)
  for (extent m = 0; m < Rows; ++m) {
    FMOE_ROUNDS(4)
    for (extent n = 0; n < Vectors; ++n)
      sums[m][n] =
          held == sum_into::started ? read(c + m * p.rows.c + n * lane) : vec<T, Arch>(T(0));
  }
  for (extent o = 0; o < p.outer.length; ++o) {
    const T *s_at = s + o * p.outer.a, *v_at = v + o * p.outer.b;
    for (extent i = 0; i < p.inner.length; ++i, s_at += p.inner.a, v_at += p.inner.b) {
      vec<T, Arch> w[Vectors];
      if constexpr (Shared) {
        FMOE_ROUNDS(4)
        for (extent n = 0; n < Vectors; ++n) w[n] = read(v_at + n * lane);
      }
      FMOE_ROUNDS(8)
      for (extent m = 0; m < Rows; ++m) {
        const vec<T, Arch> x(s_at[m * p.rows.a]);
        FMOE_ROUNDS(4)
        for (extent n = 0; n < Vectors; ++n) {
          if constexpr (!Shared) w[n] = read(v_at + m * p.rows.b + n * lane);
          sums[m][n] = fmadd(x, w[n], sums[m][n]);
        }
      }
    }
  }
  FMOE_ROUNDS(8)
  for (extent m = 0; m < Rows; ++m) {
    FMOE_ROUNDS(4)
    for (extent n = 0; n < Vectors; ++n) {
      T* const to = c + m * p.rows.c + n * lane;
      if (held == sum_into::total) sums[m][n] = read(to) + sums[m][n];
      if constexpr (Vectors == 1) store_part<T, Arch>(to, part, sums[m][n]);
      else store<T, Arch>(to, sums[m][n]);
    }
  }
}

// Computes c[out] (+)= sum over `summed` of a[...] b[...] for one token after the other; a null b
// counts as 1.
template <class T, class Arch>
class small_product {
 public:
  FMOE_NOINLINE small_product(const loop_axes& out, const loop_axes& summed) noexcept
      : all_(out),
        all_summed_(summed) {
    const std::span<const nest_axis> loops = out, sums = summed;
    for (const nest_axis& x : loops) outer_.join(x);
    loop_axes joined;
    for (const nest_axis& x : sums) joined.join(x);
    nest_axis v{1, 0, 0, 1};
    if (const extent at = vector_axis(); at < outer_.size()) v = outer_.take(at);
    length_ = v.length;
    step_ = v.c;
    if (joined.size() > 2) return;
    tile_.inner = joined.size() != 0 ? joined[joined.size() - 1] : nest_axis{1, 0, 0, 0};
    tile_.outer = joined.size() == 2 ? joined[0] : nest_axis{1, 0, 0, 0};
    swapped_ = v.a == 1;
    if (swapped_) {
      swap(tile_.inner);
      swap(tile_.outer);
      for (extent i = 0; i < outer_.size(); ++i) swap(outer_[i]);
    }
    tile_.rows = {1, 0, 0, 0};
    if (outer_.size() != 0) {  // the best axis is one along which the vectors are the same
      extent best = outer_.size() - 1;
      for (extent i = outer_.size(); i-- > 0 && outer_[best].b != 0;)
        if (outer_[i].b == 0) best = i;
      tile_.rows = outer_.take(best);
    }
    tiled_ = true;
  }

  void operator()(const T* a, const T* b, T* c, sum_into held = sum_into::nothing) const noexcept {
    static constexpr T one = 1;
    if (!tiled_) nest<T, Arch>(a, b, c, all_, all_summed_, held);
    else if (const T* const other = b != nullptr ? b : &one; swapped_)
      walk(outer_, other, a, c, held);
    else walk(outer_, a, other, c, held);
  }

 private:
  static void swap(nest_axis& x) { std::swap(x.a, x.b); }

  // Returns the last axis if it runs in vectors, or else the longest whose numbers are neighbours
  // in the one operand that has it, or the number of axes if none is.
  extent vector_axis() {
    const auto is_vector = [](const nest_axis& x) { return x.a + x.b == 1; };
    const extent count = outer_.size();
    if (count == 0) return count;
    if (outer_[count - 1].c == 1 && is_vector(outer_[count - 1])) return count - 1;
    extent best = count;
    for (extent i = 0; i < count; ++i)
      if (is_vector(outer_[i]) && (best == count || outer_[i].length > outer_[best].length))
        best = i;
    return best;
  }

  void walk(std::span<const nest_axis> outer, const T* s, const T* v, T* c,
            sum_into held) const noexcept {
    if (outer.empty())
      return tile_.rows.b == 0 ? tiles<true>(s, v, c, held) : tiles<false>(s, v, c, held);
    const nest_axis& o = outer.front();
    for (extent i = 0; i < o.length; ++i)
      walk(outer.subspan(1), s + i * o.a, v + i * o.b, c + i * o.c, held);
  }

  template <bool Shared>
  void tiles(const T* s, const T* v, T* c, sum_into held) const noexcept {
    constexpr extent lane = lanes<T, Arch>;
    constexpr extent wide =
        is_avx512<Arch> || is_neon<Arch> ? 4 : 2;  // the sums of 4 rows stay in registers, too
    extent n = 0;
    // Sums of one term do not wait for each other, whichever way a tile runs.
    if (Shared || tile_.outer.length * tile_.inner.length == 1)
      for (; step_ == 1 && n + wide * lane <= length_; n += wide * lane) {
        extent m = 0;
        if constexpr (Shared) rows<4, wide, true>(m, s, v + n, c + n, lane, held);
        rows<1, wide, Shared>(m, s, v + n, c + n, lane, held);
      }
    for (; n < length_; n += lane) {
      const extent part = std::min(lane, length_ - n);
      extent m = 0;
      rows<8, 1, Shared>(m, s, v + n, c + n * step_, part, held);
      rows<6, 1, Shared>(m, s, v + n, c + n * step_, part, held);
      rows<4, 1, Shared>(m, s, v + n, c + n * step_, part, held);
      rows<3, 1, Shared>(m, s, v + n, c + n * step_, part, held);
      rows<2, 1, Shared>(m, s, v + n, c + n * step_, part, held);
      rows<1, 1, Shared>(m, s, v + n, c + n * step_, part, held);
    }
  }

  template <extent Rows, extent Vectors, bool Shared>
  void rows(extent& m, const T* s, const T* v, T* c, extent part, sum_into held) const noexcept {
    const nest_axis& r = tile_.rows;
    const auto kernel = &product_kernel<T, Arch, Rows, Vectors, Shared>;
    for (; m + Rows <= r.length; m += Rows) {
      const T *const s_at = s + m * r.a, *const v_at = v + m * r.b;
      if (T* const to = c + m * r.c; step_ == 1) kernel(tile_, s_at, v_at, to, part, held);
      else apart<Rows>(kernel, s_at, v_at, to, part, held);
    }
  }

  // Runs a tile whose numbers lie apart in c on a copy of them.
  template <extent Rows>
  void apart(auto kernel, const T* s, const T* v, T* c, extent part, sum_into held) const noexcept {
    constexpr extent lane = lanes<T, Arch>;
    T copy[Rows * lane];
    const extent row = tile_.rows.c;
    if (held != sum_into::nothing)
      for (extent m = 0; m < Rows; ++m)
        for (extent n = 0; n < part; ++n) copy[m * lane + n] = c[m * row + n * step_];
    product_tile tile = tile_;
    tile.rows.c = lane;
    kernel(tile, s, v, copy, part, held);
    for (extent n = 0; n < part; ++n)
      for (extent m = 0; m < Rows; ++m) c[m * row + n * step_] = copy[m * lane + n];
  }

  loop_axes all_, all_summed_, outer_;
  product_tile tile_{};
  extent length_ = 0, step_ = 1;  // of the axis of vectors: how long, and how far apart in c
  bool swapped_ = false, tiled_ = false;  // swapped: a has the vectors
};

}  // namespace fmoe::cpu
