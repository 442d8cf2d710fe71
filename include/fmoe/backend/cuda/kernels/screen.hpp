// SPDX-License-Identifier: MIT
// Selects the k greatest of f(x G) with the bits of a selection from all scores in float, though
// most scores are those of tensor cores in bf16, whose error has a bound. docs/cuda.md proves the
// bound.
#pragma once

#include <fmoe/backend/cuda/kernels/narrow_number.hpp>
#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/kernels/split_selection.hpp>

namespace fmoe::cuda {

// The memory of a row: all scores | the greatest lower bounds of each part of the row | how many
// candidates each part has | the limit | values of candidates | their columns. The columns of a
// part's candidates lie where its scores were, and their scores lie from the middle of the part on.
struct screen_room {
  static constexpr extent least_part = 1024;  // columns
  static constexpr extent candidates(extent keep) { return 6 * keep + 256; }
  static constexpr extent bounds(extent columns, extent keep) {
    return divide_up(columns, least_part) * (keep + 1) + 1;
  }
  static constexpr extent size(extent, extent columns, extent keep, extent) {
    return columns + bounds(columns, keep) + 2 * candidates(keep);
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
  static constexpr unsigned lanes = 32;

  rows_at<const float> a;
  rows_at<float> scratch;
  selections_at<float> to;
  const S* g;  // [columns, depth]
  const float *by_norm, *by_rounding;
  extent depth, columns, sum_block;
  bool takes_zeros;
  passes<float> finish;  // monotone
  row_parts parts = {};
  bool has_whole_accesses = false;  // each 4 weights along the depth are one access

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

  struct size {
    float norm, lost;

    FMOE_DEVICE bool is_usual() const { return norm < usual_norm; }
  };
  // The size of x. The lanes of each warp read the whole row.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE size size_of(Block& b, extent token) const {
    const float* const x = a.row(token);
    narrowed_norm sums;
    for (extent k = b.thread() % lanes; k < depth; k += lanes) sums.add(x[k]);
    for (unsigned bits = lanes / 2; bits > 0; bits /= 2) {
      sums.squares += b.shuffle_xor(sums.squares, bits);
      sums.lost += b.shuffle_xor(sums.lost, bits);
    }
    return {narrowed_norm::raised(sums.squares), narrowed_norm::raised(sums.lost)};
  }

  // f(A - E) or f(A + E). That of an unusual column is less, or greater, than all numbers.
  FMOE_DEVICE float bound(extent token, extent c, const size& x, float side) const {
    const float floor = static_cast<float>(depth) * 0x1p-120f;
    const float error = fused(x.norm, by_norm[c], fused(x.lost, by_rounding[c], floor));
    constexpr float infinity = std::numeric_limits<float>::infinity();
    if (!(error < infinity)) return side < 0 ? -infinity : std::numeric_limits<float>::quiet_NaN();
    return finish(sum_of(scores(token)[c], side * error), token, c);
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
      FMOE_UNROLL_BY(8)
      for (; k < end; k += 4) {
        const pack<S, 4> four = load_pack<S, 4>(w + k);
        FMOE_UNROLL
        for (unsigned e = 0; e < 4; ++e) sum = fused(x[k + e], widened(four.of[e]), sum);
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

// Finds the k greatest lower bounds of a part. Where they fit, the bounds of all its columns lie in
// shared memory.
template <class How>
struct screen_bounds_kernel {
  static constexpr bool is_long = std::is_same_v<How, by_digits>;
  static constexpr unsigned threads = How::threads, blocks_each = How::blocks_each;
  static constexpr extent shared_bytes =
      How::template shared_bytes<float> + How::most * sizeof(float);

  screen_rows<float> of;  // without G

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const screen_part part(of.parts, b.block());
    const auto size = of.size_of(b, part.token);
    if (!size.is_usual()) return;  // a whole block
    float* const to = of.lower_bounds(part.token) + of.parts.before(part.number);
    const auto bound = [&](extent i) { return of.bound(part.token, part.first + i, size, -1); };
    typename How::template selector<float, Block> select(b);
    if constexpr (is_long) {
      find(select, part, bound, to);
    } else {
      const auto bounds = b.template array<float>(How::most);
      FMOE_UNROLL_BY(1)
      for (extent i = b.thread(); i < part.length; i += threads) bounds[i] = bound(i);
      b.sync();
      find(select, part, kept_bounds<Block>{bounds}, to);
    }
  }

 private:
  template <class Block>
  struct kept_bounds {
    decltype(std::declval<Block&>().template array<float>(0)) of;

    FMOE_CALLS_BLOCK
    FMOE_DEVICE float operator()(extent i) const { return of[i]; }
  };

  FMOE_CALLS_BLOCK
  template <class Select, class Value>
  FMOE_DEVICE void find(Select& select, const screen_part& part, const Value& value,
                        float* to) const {
    select.greatest(
        part.length, of.parts.keep, value, [](float) { return true; },
        [&](extent i, index place) { to[place] = value(i); });
  }
};

// At least k columns of a row have scores that reach the k-th greatest lower bound, the limit. A
// block finds what may reach it in a part, and computes these scores.
template <class S>
struct screen_candidates_kernel {
  static constexpr unsigned threads = 256;
  static constexpr extent shared_bytes = 4096;

  screen_rows<S> of;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const screen_part part(of.parts, b.block());
    const auto size = of.size_of(b, part.token);
    if (!size.is_usual()) return;  // a whole block
    const float* const lower = of.lower_bounds(part.token);
    selector<Block> select(b);
    const index limit = select.key_of_rank(of.parts.candidates(), of.parts.keep,
                                           [&](extent i) { return lower[i]; });
    const bool drops = of.drops_zeros(limit);
    float* const scores = of.scores(part.token) + part.first;
    index* const places = reinterpret_cast<index*>(scores);  // these scores have been read
    const index count = select.all_of(
        part.length, [&](extent i) { return of.bound(part.token, part.first + i, size, 1); },
        [&](float upper) { return key_of(upper) >= limit && !(drops && upper <= 0); },
        [&](extent i, index place) {
          if (place < part.room()) places[place] = static_cast<index>(part.first + i);
        });
    if (b.thread() == 0) {
      of.counts(part.token)[part.number] = count;
      if (part.number == 0) of.limit(part.token) = limit;
    }
    b.sync();
    if (count <= part.room()) score(b, part, places, count, scores + part.room());
  }

 private:
  // A thread sums a block of the terms of a score, or all of them if there are many blocks.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void score(Block& b, const screen_part& part, const index* places, index count,
                         float* to) const {
    const float* const x = of.a.row(part.token);
    const extent all = divide_up(of.depth, of.sum_block);
    const auto blocks = static_cast<index>(all <= threads ? all : 1);
    const index each = threads / blocks, own = b.thread() / blocks, block = b.thread() % blocks;
    const auto sums = b.template array<float>(threads);
    for (index first = 0; first < count; first += each) {
      const bool has_one = own < each && first + own < count;
      const extent place = has_one ? places[first + own] : 0;
      if (has_one)
        sums[b.thread()] = all <= threads ? of.sum_of_block(x, place, block) : of.product(x, place);
      b.sync();
      if (has_one && block == 0) {
        float total = sums[b.thread()];
        for (index n = 1; n < blocks; ++n) total = sum_of(total, float(sums[b.thread() + n]));
        to[first + own] = of.finish(total, part.token, place);
      }
      b.sync();
    }
  }
};

// A block selects among the candidates of a row. A row that is not usual, or has too many of them,
// is scored in full.
template <class S>
struct screen_select_kernel {
  static constexpr unsigned threads = 256;
  static constexpr extent shared_bytes = 2048;

  screen_rows<S> of;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent token = b.block();
    const float* const x = of.a.row(token);
    float *const scores = of.scores(token), *const values = of.values(token);
    index* const places = of.places(token);
    const selection_row<float> s = of.to.row(token, 0);
    bool has_room = of.size_of(b, token).is_usual();
    index count = 0;
    for (extent p = 0; has_room && p < of.parts.count(); ++p) {
      const screen_part part(of.parts, token * of.parts.count() + p);
      const index some = of.counts(token)[p];
      has_room = some <= part.room() && count + some <= screen_room::candidates(of.to.keep);
      if (!has_room) break;
      const float* const from = scores + part.first;
      for (index i = b.thread(); i < some; i += threads) {
        places[count + i] = reinterpret_cast<const index*>(from)[i];
        values[count + i] = from[part.room() + i];
      }
      count += some;
    }
    b.sync();
    const bool drops = has_room && of.drops_zeros(of.limit(token));
    if (!has_room) {
      for (extent c = b.thread(); c < of.columns; c += threads)
        scores[c] = of.finish(of.product(x, c), token, c);
      b.sync();
    }
    const auto place = [&](extent i) { return has_room ? places[i] : static_cast<index>(i); };
    const float* const from = has_room ? values : scores;
    selector<Block> select(b);
    const index kept = select.greatest(
        has_room ? extent{count} : of.columns, of.to.most, [&](extent i) { return from[i]; },
        [&](float v) { return (of.takes_zeros || v != 0) && !(drops && v < 0); },
        [&](extent i, index at) {
          s.values()[at] = from[i];
          s.indices()[at] = place(i);
        });
    if (b.thread() == 0) s.count() = kept;
  }
};

}  // namespace fmoe::cuda
