// SPDX-License-Identifier: MIT
// What the kernels of screen.hpp have in common: the memory of a row, the bounds of the errors of
// scores by tensor cores, and the parts of a row. docs/screening.md proves the bounds.
#pragma once

#include <fmoe/backend/cuda/kernels/narrow_number.hpp>
#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/kernels/split_selection.hpp>

namespace fmoe::cuda {

// The memory of a row: all scores, and later their upper bounds | the greatest lower bounds of each
// part of the row, how many candidates each part has, the limit | values of candidates | their
// columns | the size of x | x in bf16. The columns of a part's candidates lie where its scores
// were, and their scores lie from the middle of the part on.
struct screen_room {
  static constexpr extent least_part = 1024;  // columns
  static constexpr extent candidates(extent keep) { return 6 * keep + 256; }
  static constexpr extent bounds(extent columns, extent keep) {
    return divide_up(columns, least_part) * (keep + 1) + 1;
  }
  // Where x in bf16 begins: at an access.
  static constexpr extent narrowed(extent columns, extent keep) {
    return round_up(columns + bounds(columns, keep) + 2 * candidates(keep) + 2, extent{4});
  }
  static constexpr extent size(extent depth, extent columns, extent keep, extent) {
    return narrowed(columns, keep) + round_up(depth, extent{8}) / 2;
  }
};

// Bounds of a row or column v and of what rounding to bf16 takes from it. Tensor cores may take
// subnormal numbers for 0.
struct narrowed_norm {
  double squares = 0, lost = 0;

  FMOE_DEVICE void add(float v) {
    const auto rounded = std::bit_cast<float>(to_bf16_pair(0, v));
    const float size = rounded < 0 ? -rounded : rounded;
    const double left = size < 0x1p-126f ? double{v} : double{v} - double{rounded};
    squares += double{v} * double{v};
    lost += left * left;
  }
  // Raised by more than roundings take away.
  FMOE_DEVICE static float raised(double sum) {
    return static_cast<float>(root_of(sum) * (1 + 0x1p-20) + 0x1p-126);
  }
};

// With a bound of their norms below this, no sum of a usual row and column overflows.
inline constexpr float usual_norm = 0x1p60f;

// The relative error of a score by tensor cores, and of one in float, at most. In each of so many
// small products 16 terms and the sum before them may lose a unit of the greatest, and so may the
// result.
struct screen_errors {
  double tensor, exact;

  static constexpr screen_errors of(extent depth, extent sum_block) {
    const extent block = sum_block < depth ? sum_block : depth;
    const extent slabs = (depth + block - 1) / block * ((block + 31) / 32);
    const auto products = static_cast<double>(2 * slabs),
               roundings = static_cast<double>(block + (depth + block - 1) / block);
    return {products * 23 * 0x1p-23 + roundings * 0x1p-22, roundings * 0x1p-23};
  }
};

// Of each column of G what bounds the errors of its scores: |S - A| <= |x| by_norm + |x - x^|
// by_rounding + floor, where x^ is x in bf16. S is the type of G in memory.
template <class S>
struct bound_columns {
  const S* g;  // [columns, depth]
  float *by_norm, *by_rounding;
  extent depth, columns;
  screen_errors errors;

  FMOE_DEVICE void operator()(extent c) const {
    narrowed_norm sums;
    for (extent k = 0; k < depth; ++k) sums.add(widened(g[c * depth + k]));
    constexpr double up = 1 + 0x1p-20;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const double norm = narrowed_norm::raised(sums.squares),
                 lost = narrowed_norm::raised(sums.lost), narrowed = norm + lost;
    const bool is_usual = norm < usual_norm && errors.tensor < 0.2;  // which a NaN is not
    by_norm[c] =
        is_usual ? static_cast<float>((lost + errors.exact * norm + errors.tensor * narrowed) * up)
                 : infinity;
    by_rounding[c] = is_usual ? static_cast<float>(narrowed * (1 + errors.tensor) * up) : infinity;
  }
};

// What the kernels of a screened selection have in common. S is the type of G.
template <class S>
struct screen_rows {
  rows_at<const float> a;
  rows_at<float> scratch;
  selections_at<float> to;
  const S* g;  // [columns, depth]
  const float *by_norm, *by_rounding;
  extent depth, columns, sum_block;
  bool takes_zeros;
  passes<float> finish;  // monotone
  row_parts parts = {};
  bool has_whole_accesses = false;  // each 4 numbers along the depth are one access

  FMOE_DEVICE float* scores(extent token) const { return scratch.row(token); }
  FMOE_DEVICE float* lower_bounds(extent token) const { return scores(token) + columns; }
  FMOE_DEVICE index* counts(extent token) const {
    return reinterpret_cast<index*>(lower_bounds(token) + parts.candidates());
  }
  FMOE_DEVICE index& limit(extent token) const { return counts(token)[parts.count()]; }
  FMOE_DEVICE float* values(extent token) const {
    return lower_bounds(token) + screen_room::bounds(columns, to.keep);
  }
  FMOE_DEVICE index* places(extent token) const {
    return reinterpret_cast<index*>(values(token) + screen_room::candidates(to.keep));
  }
  FMOE_DEVICE bf16* narrowed(extent token) const {
    return reinterpret_cast<bf16*>(scores(token) + screen_room::narrowed(columns, to.keep));
  }

  struct size {
    float norm, lost;

    FMOE_DEVICE bool is_usual() const { return norm < usual_norm; }
  };
  // The size of x, which the first kernel writes.
  FMOE_DEVICE size& size_of(extent token) const {
    return *reinterpret_cast<size*>(places(token) + screen_room::candidates(to.keep));
  }

  // f(A - E) and f(A + E) of N columns: that of an unusual one is less, or greater, than all
  // numbers.
  template <unsigned N>
  struct bounds {
    float lower[N], upper[N];
  };
  template <unsigned N, class Column>
  FMOE_DEVICE bounds<N> bounds_of(extent token, const size& x, const Column& column) const {
    const float* const all = scores(token);
    const float floor = static_cast<float>(depth) * 0x1p-120f;
    float both[2 * N];
    bool is_usual[N];
    FMOE_UNROLL
    for (unsigned i = 0; i < N; ++i) {
      const index c = column(i);
      const float error = fused(x.norm, by_norm[c], fused(x.lost, by_rounding[c], floor));
      is_usual[i] = error < std::numeric_limits<float>::infinity();
      both[i] = sum_of(all[c], -error);
      both[N + i] = sum_of(all[c], error);
    }
    finish(both, 0, [&](unsigned i) { return number_place{token, column(i % N)}; });
    bounds<N> made;
    FMOE_UNROLL
    for (unsigned i = 0; i < N; ++i) {
      made.lower[i] = is_usual[i] ? both[i] : -std::numeric_limits<float>::infinity();
      made.upper[i] = is_usual[i] ? both[N + i] : std::numeric_limits<float>::quiet_NaN();
    }
    return made;
  }
  // If the k-th greatest score is at least 0, those below are not selected, and 0 is left out.
  FMOE_DEVICE bool drops_zeros(index least) const { return !takes_zeros && least >= key_of(0.f); }

  // The CPU's sum, and block number n of it.
  FMOE_DEVICE float product(const float* x, extent c) const {
    float total = sum_of_block(x, c, 0);
    for (extent n = 1; n * sum_block < depth; ++n) total = sum_of(total, sum_of_block(x, c, n));
    return total;
  }
  FMOE_DEVICE float sum_of_block(const float* x, extent c, extent n) const {
    const S* const w = g + c * depth;
    extent k = n * sum_block;
    const extent end = depth - k < sum_block ? depth : k + sum_block;
    float sum = 0;
    if (has_whole_accesses) {
      const auto packs = static_cast<index>((end - k) / 4);
      FMOE_UNROLL_BY(8)
      for (index p = 0; p < packs; ++p) {
        const pack<S, 4> weights = load_pack<S, 4>(w + k + 4 * p);
        const pack<float, 4> numbers = load_pack<float, 4>(x + k + 4 * p);
        FMOE_UNROLL
        for (unsigned e = 0; e < 4; ++e) sum = fused(numbers.of[e], widened(weights.of[e]), sum);
      }
    } else {
      for (; k < end; ++k) sum = fused(x[k], widened(w[k]), sum);
    }
    return sum;
  }
};

// A part of a row, which a block works on.
struct screen_part {
  extent token, first, length, number;

  FMOE_DEVICE screen_part(const row_parts& of, extent block)
      : token(block / of.count()),
        first(block % of.count() * of.each),
        length(of.length(block % of.count())),
        number(block % of.count()) {}

  FMOE_DEVICE extent room() const { return length / 2; }
};

}  // namespace fmoe::cuda
