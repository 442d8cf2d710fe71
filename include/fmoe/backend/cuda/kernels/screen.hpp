// SPDX-License-Identifier: MIT
// Selects the k greatest of f(x G) with the bits of a selection from all scores in float, though
// most scores are those of tensor cores in bf16, whose error has a bound. Five kernels, one after
// the other, the first one before the product: sizes, bounds, candidates, scores of candidates,
// selection.
#pragma once

#include <fmoe/backend/cuda/kernels/screen_rows.hpp>

namespace fmoe::cuda {

// Finds the size of x, and x in bf16; a block has a row.
struct screen_sizes_kernel {
  static constexpr unsigned threads = 256, lanes = 32, warps = threads / lanes;
  static constexpr extent shared_bytes = 2 * warps * sizeof(double);

  screen_rows<float> of;  // without G

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent token = b.block();
    const float* const x = of.a.row(token);
    bf16* const to = of.narrowed(token);
    narrowed_norm mine;
    for (extent k = b.thread(); k < of.depth; k += threads) {
      mine.add(x[k]);
      to[k] = to_bf16(x[k]);
    }
    for (unsigned bits = lanes / 2; bits > 0; bits /= 2) {
      mine.squares += b.shuffle_xor(mine.squares, bits);
      mine.lost += b.shuffle_xor(mine.lost, bits);
    }
    const auto sums = b.template array<double>(2 * warps);
    const unsigned warp = b.thread() / lanes;
    if (b.thread() % lanes == 0) {
      sums[2 * warp] = mine.squares;
      sums[2 * warp + 1] = mine.lost;
    }
    b.sync();
    if (b.thread() != 0) return;
    narrowed_norm all;
    for (unsigned w = 0; w < warps; ++w) {
      all.squares += sums[2 * w];
      all.lost += sums[2 * w + 1];
    }
    of.size_of(token) = {narrowed_norm::raised(all.squares), narrowed_norm::raised(all.lost)};
  }
};

// Finds the k greatest lower bounds of a part, and leaves the upper bounds where its scores were.
// Where they fit, the lower bounds of all its columns lie in shared memory.
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
    const auto size = of.size_of(part.token);
    if (!size.is_usual()) return;  // a whole block
    float* const to = of.lower_bounds(part.token) + of.parts.before(part.number);
    float* const scores = of.scores(part.token);
    const auto first = static_cast<index>(part.first), length = static_cast<index>(part.length);
    typename How::template selector<float, Block> select(b);
    const auto bounds = [&]<unsigned N>(std::integral_constant<unsigned, N>, const auto& number) {
      return of.template bounds_of<N>(part.token, size, [&](unsigned i) {
        return first + (number(i) < length ? number(i) : 0);
      });
    };
    if constexpr (is_long) {
      constexpr std::integral_constant<unsigned, 1> one;
      find(
          select, part,
          [&](extent i) {
            return bounds(one, [&](unsigned) { return static_cast<index>(i); }).lower[0];
          },
          to);
      b.sync();
      for (index i = b.thread(); i < length; i += threads)
        scores[first + i] = bounds(one, [&](unsigned) { return i; }).upper[0];
    } else {
      constexpr unsigned at_once = 4;
      static_assert(How::most % (at_once * threads) == 0);
      const kept_bounds<Block> kept{b.template array<float>(How::most)};
      FMOE_UNROLL_BY(1)
      for (index from = b.thread(); from < How::most; from += at_once * threads) {
        const auto number = [&](unsigned i) { return from + i * threads; };
        const auto some = bounds(std::integral_constant<unsigned, at_once>(), number);
        FMOE_UNROLL
        for (unsigned i = 0; i < at_once; ++i)
          if (number(i) < length) {
            kept.put(number(i), some.lower[i]);
            scores[first + number(i)] = some.upper[i];
          }
      }
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
  template <class Select, class Value>
  FMOE_DEVICE void find(Select& select, const screen_part& part, const Value& value,
                        float* to) const {
    select.greatest(
        part.length, of.parts.keep, value, [](float) { return true; },
        [&](extent i, index place) { to[place] = value(i); });
  }
};

// At least k columns of a row have scores that reach the k-th greatest lower bound, the limit. A
// block finds what may reach it in a part, or in each part of a row.
template <class S>
struct screen_candidates_kernel {
  static constexpr unsigned threads = 256;
  static constexpr extent shared_bytes = 4096;

  screen_rows<S> of;
  extent parts_each;  // of a block

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const screen_part first(of.parts, b.block() * parts_each);
    const extent token = first.token;
    if (!of.size_of(token).is_usual()) return;  // a whole block
    const float* const lower = of.lower_bounds(token);
    selector<Block> select(b);
    const index limit = select.key_of_rank(of.parts.candidates(), of.parts.keep,
                                           [&](extent i) { return lower[i]; });
    for (extent n = 0; n < parts_each; ++n) {
      const screen_part part(of.parts, b.block() * parts_each + n);
      float* const scores = of.scores(token) + part.first;
      index* const places = reinterpret_cast<index*>(scores);  // these scores have been read
      const index count = find(b, select, part, limit, places);
      if (b.thread() == 0) of.counts(token)[part.number] = count;
    }
    if (b.thread() == 0 && first.number == 0) of.limit(token) = limit;
  }

 private:
  static constexpr index lanes = 32;

  // Writes the columns that may reach the limit, and returns their number. Of the columns of a warp
  // 32 neighbours are looked at together, and lane i remembers the i-th of these looks.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE index find(Block& b, selector<Block>& select, const screen_part& part, index limit,
                         index* places) const {
    const float* const uppers = of.scores(part.token) + part.first;
    const bool drops = of.drops_zeros(limit);
    const index lane = b.thread() % lanes, length = static_cast<index>(part.length);
    index count = 0;
    for (index first = 0; first < length;) {
      const auto left = static_cast<index>(divide_up(length - first, extent{threads}));
      const index looks = left < lanes ? left : lanes,
                  own = first + b.thread() / lanes * looks * lanes;
      unsigned mine = 0;
      constexpr index at_once = 8;
      FMOE_UNROLL_BY(1)
      for (index look = 0; look < looks; look += at_once) {
        const auto number = [&](index n) { return own + (look + n) * lanes + lane; };
        float some[at_once];
        FMOE_UNROLL
        for (index n = 0; n < at_once; ++n)
          some[n] = look + n < looks && number(n) < length ? uppers[number(n)] : 0;
        FMOE_UNROLL
        for (index n = 0; n < at_once; ++n) {
          const bool exists = look + n < looks && number(n) < length;
          const unsigned all =
              b.ballot(exists && key_of(some[n]) >= limit && !(drops && some[n] <= 0));
          if (look + n == lane) mine = all;
        }
      }
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
