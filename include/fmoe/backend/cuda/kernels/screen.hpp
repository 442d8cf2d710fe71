// SPDX-License-Identifier: MIT
// Selects the k greatest of f(x G) with the bits of a selection from all scores in float, though
// most scores are those of tensor cores in bf16, whose error has a bound. docs/cuda.md proves the
// bound.
#pragma once

#include <fmoe/backend/cuda/kernels/narrow_number.hpp>
#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/kernels/select.hpp>

namespace fmoe::cuda {

// The memory of a row: all scores | values of candidates | their columns.
struct screen_room {
  static constexpr extent candidates(extent keep) { return 6 * keep + 256; }
  static constexpr extent size(extent, extent columns, extent keep, extent) {
    return columns + 2 * candidates(keep);
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

// A block selects among the scores of a row, which are in its memory. S is the type of G.
template <class S>
struct screen_kernel {
  static constexpr unsigned threads = 256, lanes = 32;
  static constexpr extent shared_bytes = 4096;

  rows_at<const float> a;
  rows_at<float> scratch;
  selections_at<float> to;
  const S* g;  // [columns, depth]
  const float *by_norm, *by_rounding;
  extent depth, columns, sum_block;
  bool takes_zeros;
  passes<float> finish;  // monotone

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent token = b.block(), keep = to.most, room = screen_room::candidates(to.keep);
    const float* const x = a.row(token);
    float* const scores = scratch.row(token);
    float* const values = scores + columns;
    index* const places = reinterpret_cast<index*>(values + room);
    const selection_row<float> s = to.row(token, 0);
    selector<Block> select(b);
    const pair size = norms(b, x);

    index count = 0;
    bool has_room = size.norm < usual_norm;
    std::uint32_t limit = 0;
    if (has_room) {
      // At least k columns have scores that reach the k-th greatest lower bound.
      select.greatest(
          columns, keep, [&](extent c) { return bound(scores, token, c, size, -1); },
          [](float) { return true; },
          [&](extent c, index place) {
            if (place < room) values[place] = bound(scores, token, c, size, -1);
          });
      b.sync();
      limit = least_key(b, values, keep < columns ? keep : columns);
      const bool drops = drops_zeros(limit);
      count = select.all_of(
          columns, [&](extent c) { return bound(scores, token, c, size, 1); },
          [&](float upper) { return key_of(upper) >= limit && !(drops && upper <= 0); },
          [&](extent c, index place) {
            if (place < room) places[place] = static_cast<index>(c);
          });
      has_room = count <= room;
    }
    b.sync();
    const bool drops = has_room && drops_zeros(limit);
    if (has_room) {
      for (extent i = b.thread(); i < count; i += threads) {
        const extent c = places[i];
        values[i] = finish(product(x, g + c * depth), token, c);
      }
    } else {
      for (extent c = b.thread(); c < columns; c += threads)
        scores[c] = finish(product(x, g + c * depth), token, c);
    }
    b.sync();
    const auto place = [&](extent i) { return has_room ? places[i] : static_cast<index>(i); };
    const float* const from = has_room ? values : scores;
    const index kept = select.greatest(
        has_room ? extent{count} : columns, keep, [&](extent i) { return from[i]; },
        [&](float v) { return (takes_zeros || v != 0) && !(drops && v < 0); },
        [&](extent i, index at) {
          s.values()[at] = from[i];
          s.indices()[at] = place(i);
        });
    if (b.thread() == 0) s.count() = kept;
  }

 private:
  struct pair {
    float norm, lost;
  };

  // If the k-th greatest score is at least 0, those below are not selected, and 0 is left out.
  FMOE_DEVICE bool drops_zeros(std::uint32_t limit) const {
    return !takes_zeros && limit >= key_of(0.f);
  }

  // f(A - E) or f(A + E). That of an unusual column is less, or greater, than all numbers.
  FMOE_DEVICE float bound(const float* scores, extent token, extent c, const pair& size,
                          float side) const {
    const float floor = static_cast<float>(depth) * 0x1p-120f;
    const float error = fused(size.norm, by_norm[c], fused(size.lost, by_rounding[c], floor));
    constexpr float infinity = std::numeric_limits<float>::infinity();
    if (!(error < infinity)) return side < 0 ? -infinity : std::numeric_limits<float>::quiet_NaN();
    return finish(sum_of(scores[c], side * error), token, c);
  }

  // The CPU's sum.
  FMOE_DEVICE float product(const float* x, const S* w) const {
    float total = 0;
    for (extent k = 0; k < depth;) {
      const extent end = depth - k < sum_block ? depth : k + sum_block;
      const bool is_first = k == 0;
      float sum = 0;
      for (; k < end; ++k) sum = fused(x[k], widened(w[k]), sum);
      total = is_first ? sum : sum_of(total, sum);
    }
    return total;
  }

  // The lanes of each warp read the whole row.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE pair norms(Block& b, const float* x) const {
    narrowed_norm sums;
    for (extent k = b.thread() % lanes; k < depth; k += lanes) sums.add(x[k]);
    for (unsigned bits = lanes / 2; bits > 0; bits /= 2) {
      sums.squares += b.shuffle_xor(sums.squares, bits);
      sums.lost += b.shuffle_xor(sums.lost, bits);
    }
    return {narrowed_norm::raised(sums.squares), narrowed_norm::raised(sums.lost)};
  }
  // The least key of n numbers, which each warp finds.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE std::uint32_t least_key(Block& b, const float* numbers, extent n) const {
    std::uint32_t least = ~std::uint32_t{0};
    for (extent i = b.thread() % lanes; i < n; i += lanes)
      if (const auto key = key_of(numbers[i]); key < least) least = key;
    for (unsigned bits = lanes / 2; bits > 0; bits /= 2)
      if (const auto other = b.shuffle_xor(least, bits); other < least) least = other;
    return least;
  }
};

}  // namespace fmoe::cuda
