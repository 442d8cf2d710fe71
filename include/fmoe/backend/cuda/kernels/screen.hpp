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
// candidates each part has | the limit | the size of x | values of candidates | their columns. The
// columns of a part's candidates lie where its scores were, and their scores lie from the middle of
// the part on.
struct screen_room {
  static constexpr extent least_part = 1024;  // columns
  static constexpr extent candidates(extent keep) { return 6 * keep + 256; }
  static constexpr extent bounds(extent columns, extent keep) {
    return divide_up(columns, least_part) * (keep + 1) + 3;
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

  struct size {
    float norm, lost;

    FMOE_DEVICE bool is_usual() const { return norm < usual_norm; }
  };
  // The size of x, which the first kernel writes.
  FMOE_DEVICE size& size_of(extent token) const {
    return *reinterpret_cast<size*>(&limit(token) + 1);
  }

  // A - E or A + E; NaN for an unusual column.
  FMOE_DEVICE float unfinished(extent token, extent c, const size& x, float side) const {
    const float floor = static_cast<float>(depth) * 0x1p-120f;
    const float error = fused(x.norm, by_norm[c], fused(x.lost, by_rounding[c], floor));
    return error < std::numeric_limits<float>::infinity() ? sum_of(scores(token)[c], side * error)
                                                          : std::numeric_limits<float>::quiet_NaN();
  }
  // f(A - E) or f(A + E) of N columns. That of an unusual one is less, or greater, than all
  // numbers.
  template <unsigned N, class Column>
  FMOE_DEVICE void finish_bounds(float (&bounds)[N], extent token, float side,
                                 const Column& column) const {
    bool is_usual[N];
    FMOE_UNROLL
    for (unsigned i = 0; i < N; ++i) is_usual[i] = bounds[i] == bounds[i];
    finish(bounds, 0, [&](unsigned i) { return number_place{token, column(i)}; });
    FMOE_UNROLL
    for (unsigned i = 0; i < N; ++i)
      if (!is_usual[i])
        bounds[i] = side < 0 ? -std::numeric_limits<float>::infinity()
                             : std::numeric_limits<float>::quiet_NaN();
  }
  // Calls use(n, i, bound) for the n-th of `each` columns, which is number i = from + n step of
  // those from `first` on; columns from number `length` on do not exist. Four are made at a time.
  template <class Use>
  FMOE_DEVICE void each_bound(extent token, extent first, const size& x, float side, index from,
                              index step, index each, index length, const Use& use) const {
    constexpr index at_once = 4;
    FMOE_UNROLL_BY(1)
    for (index n = 0; n < each; n += at_once) {
      float some[at_once];
      const auto column = [&](unsigned i) {
        const index at = from + (n + i) * step;
        return first + (at < length ? at : 0);
      };
      FMOE_UNROLL
      for (index i = 0; i < at_once; ++i) some[i] = unfinished(token, column(i), x, side);
      finish_bounds(some, token, side, column);
      FMOE_UNROLL
      for (index i = 0; i < at_once; ++i)
        if (n + i < each) use(n + i, from + (n + i) * step, some[i]);
    }
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

// Finds the size of x and the k greatest lower bounds of a part. Where they fit, the bounds of all
// its columns lie in shared memory.
template <class How>
struct screen_bounds_kernel {
  static constexpr bool is_long = std::is_same_v<How, by_digits>;
  static constexpr unsigned threads = How::threads, blocks_each = How::blocks_each, lanes = 32;
  static constexpr extent shared_bytes = How::template shared_bytes<float> +
                                         How::most * sizeof(float) +
                                         threads / lanes * sizeof(narrowed_norm);

  screen_rows<float> of;  // without G

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const screen_part part(of.parts, b.block());
    const auto size = size_of(b, part.token);
    if (b.thread() == 0 && part.number == 0) of.size_of(part.token) = size;
    if (!size.is_usual()) return;  // a whole block
    float* const to = of.lower_bounds(part.token) + of.parts.before(part.number);
    typename How::template selector<float, Block> select(b);
    if constexpr (is_long) {
      find(
          select, part,
          [&](extent i) {
            const extent c = part.first + i;
            float one[] = {of.unfinished(part.token, c, size, -1)};
            of.finish_bounds(one, part.token, -1, [&](unsigned) { return c; });
            return one[0];
          },
          to);
    } else {
      const kept_bounds<Block> kept{b.template array<float>(How::most)};
      const auto length = static_cast<index>(part.length);
      of.each_bound(part.token, part.first, size, -1, b.thread(), threads, How::most / threads,
                    length, [&](index, index i, float bound) {
                      if (i < length) kept.put(i, bound);
                    });
      b.sync();
      find(select, part, kept, to);
    }
  }

 private:
  template <class Block>
  struct kept_bounds {
    decltype(std::declval<Block&>().template array<float>(0)) of;

    FMOE_CALLS_BLOCK
    FMOE_DEVICE float operator()(extent i) const { return of[i]; }
    FMOE_CALLS_BLOCK
    FMOE_DEVICE void put(index i, float bound) const { of[i] = bound; }
  };

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE screen_rows<float>::size size_of(Block& b, extent token) const {
    const float* const x = of.a.row(token);
    narrowed_norm mine;
    for (extent k = b.thread(); k < of.depth; k += threads) mine.add(x[k]);
    for (unsigned bits = lanes / 2; bits > 0; bits /= 2) {
      mine.squares += b.shuffle_xor(mine.squares, bits);
      mine.lost += b.shuffle_xor(mine.lost, bits);
    }
    const auto sums = b.template array<double>(2 * threads / lanes);
    if (b.thread() % lanes == 0) {
      sums[b.thread() / lanes * 2] = mine.squares;
      sums[b.thread() / lanes * 2 + 1] = mine.lost;
    }
    b.sync();
    narrowed_norm all;
    for (unsigned w = 0; w < threads / lanes; ++w) {
      all.squares += sums[2 * w];
      all.lost += sums[2 * w + 1];
    }
    return {narrowed_norm::raised(all.squares), narrowed_norm::raised(all.lost)};
  }

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
// block finds what may reach it in a part.
template <class S>
struct screen_candidates_kernel {
  static constexpr unsigned threads = 256;
  static constexpr extent shared_bytes = 4096;

  screen_rows<S> of;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const screen_part part(of.parts, b.block());
    if (!of.size_of(part.token).is_usual()) return;  // a whole block
    const float* const lower = of.lower_bounds(part.token);
    selector<Block> select(b);
    const index limit = select.key_of_rank(of.parts.candidates(), of.parts.keep,
                                           [&](extent i) { return lower[i]; });
    float* const scores = of.scores(part.token) + part.first;
    index* const places = reinterpret_cast<index*>(scores);  // these scores have been read
    const index count = find(b, select, part, limit, places);
    if (b.thread() != 0) return;
    of.counts(part.token)[part.number] = count;
    if (part.number == 0) of.limit(part.token) = limit;
  }

 private:
  static constexpr index lanes = 32;

  // Writes the columns that may reach the limit, and returns their number. Of the columns of a warp
  // 32 neighbours are looked at together, and lane i remembers the i-th of these looks.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE index find(Block& b, selector<Block>& select, const screen_part& part, index limit,
                         index* places) const {
    const auto size = of.size_of(part.token);
    const bool drops = of.drops_zeros(limit);
    const index lane = b.thread() % lanes, length = static_cast<index>(part.length);
    index count = 0;
    for (index first = 0; first < length;) {
      const auto left = static_cast<index>(divide_up(length - first, extent{threads}));
      const index looks = left < lanes ? left : lanes,
                  own = first + b.thread() / lanes * looks * lanes;
      unsigned mine = 0;
      of.each_bound(part.token, part.first, size, 1, own + lane, lanes, looks, length,
                    [&](index look, index i, float upper) {
                      const unsigned all =
                          b.ballot(i < length && key_of(upper) >= limit && !(drops && upper <= 0));
                      if (look == lane) mine = all;
                    });
      const auto found = select.sum_of_threads(count_ones(mine));
      for (index look = 0; look < looks; ++look) {
        const unsigned all = b.shuffle(mine, look);
        const index before = b.shuffle(found.before, look);
        const index place = count + before + count_ones(all & ((1u << lane) - 1));
        if ((all >> lane & 1) != 0 && place < part.room())
          places[place] = static_cast<index>(part.first) + own + look * lanes + lane;
      }
      count += found.all;
      first += threads * looks;
    }
    return count;
  }
};

// Computes the scores of the candidates of a part, a warp a part. A lane sums a block of the terms
// of a score, or all of them if there are many blocks.
template <class S>
struct screen_scores_kernel {
  static constexpr unsigned threads = warps::threads;
  static constexpr extent shared_bytes = 0;

  screen_rows<S> of;
  extent tokens;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const row_place row = warps::row_of(b, tokens, of.parts.count());
    if (!row.exists || !of.size_of(row.token).is_usual()) return;  // a whole warp
    const screen_part part(of.parts, row.token * of.parts.count() + row.row);
    const index count = of.counts(part.token)[part.number];
    if (count > part.room()) return;
    const float* const x = of.a.row(part.token);
    float* const scores = of.scores(part.token) + part.first;
    const index* const places = reinterpret_cast<const index*>(scores);
    const extent all = divide_up(of.depth, of.sum_block);
    const bool is_shared = all <= warps::lanes;
    const index blocks = is_shared ? static_cast<index>(all) : 1, each = warps::lanes / blocks,
                lane = b.thread() % warps::lanes, own = lane / blocks, block = lane % blocks;
    for (index first = 0; first < count; first += each) {
      const bool has_one = own < each && first + own < count;
      const extent place = has_one ? places[first + own] : 0;
      float sum = 0;
      if (has_one) sum = is_shared ? of.sum_of_block(x, place, block) : of.product(x, place);
      float total = sum;
      for (index n = 1; n < blocks; ++n) total = sum_of(total, b.shuffle(sum, lane + n));
      if (has_one && block == 0)
        scores[part.room() + first + own] = of.finish(total, part.token, place);
    }
  }
};

// A block selects among the candidates of a row. A row that is not usual, or has too many of them,
// is scored in full.
template <class S>
struct screen_select_kernel {
  using few = in_registers<4, 256>;
  static constexpr unsigned threads = few::threads, lanes = 32;
  static constexpr extent shared_bytes = 2048 + few::shared_bytes<float>;

  screen_rows<S> of;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent token = b.block();
    const float* const x = of.a.row(token);
    float *const scores = of.scores(token), *const values = of.values(token);
    index* const places = of.places(token);
    const selection_row<float> s = of.to.row(token, 0);
    const index* const counts = of.counts(token);
    const auto parts = static_cast<index>(of.parts.count());
    bool has_room = of.size_of(token).is_usual();
    index count = 0;
    if (has_room)
      for (index p = 0; p < parts; ++p) {
        has_room = has_room && counts[p] <= of.parts.length(p) / 2;
        count += counts[p];
      }
    has_room = has_room && count <= screen_room::candidates(of.to.keep);
    if (has_room)
      for (index p = b.thread() / lanes; p < parts; p += threads / lanes) {
        const screen_part part(of.parts, token * parts + p);
        const float* const from = scores + part.first;
        index before = 0;
        for (index q = 0; q < p; ++q) before += counts[q];
        for (index i = b.thread() % lanes; i < counts[p]; i += lanes) {
          places[before + i] = reinterpret_cast<const index*>(from)[i];
          values[before + i] = from[part.room() + i];
        }
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
    const auto greatest = [&](auto&& select) {
      return select.greatest(
          has_room ? extent{count} : of.columns, of.to.most, [&](extent i) { return from[i]; },
          [&](float v) { return (of.takes_zeros || v != 0) && !(drops && v < 0); },
          [&](extent i, index at) {
            s.values()[at] = from[i];
            s.indices()[at] = place(i);
          });
    };
    const index kept = has_room && count <= few::most && of.to.most <= few::most_kept
                           ? greatest(typename few::template selector<float, Block>(b))
                           : greatest(selector<Block>(b));
    if (b.thread() == 0) s.count() = kept;
  }
};

}  // namespace fmoe::cuda
