// SPDX-License-Identifier: MIT
// A selection of the greatest numbers that reads each number once: a thread keeps the keys of Items
// numbers in registers. The k-th greatest of what each thread has as its greatest bounds the k-th
// greatest of all from below. Few numbers reach it, about k, and each of them counts those before
// it. Where many are equal, the k-th greatest is found bit by bit.
#pragma once

#include <fmoe/backend/cuda/kernels/warp_selection.hpp>

namespace fmoe::cuda {

template <class T, class Block, unsigned Items, unsigned Threads>
class register_selector {
  using key = typename number<T>::bits;

 public:
  FMOE_CALLS_BLOCK
  FMOE_DEVICE explicit register_selector(Block& b)
      : block_(b),
        keys_(b.template array<key>(Threads)),
        places_(b.template array<index>(Threads)),
        chosen_(b.template array<index>(Threads)),
        warp_sums_(b.template array<index>(warps)) {}

  // As selector::greatest(), for n <= Items * Threads and k <= Threads.
  FMOE_CALLS_BLOCK
  template <class Value, class Wanted, class Put>
  FMOE_DEVICE index greatest(extent n, extent k, const Value& value, const Wanted& wanted,
                             const Put& put) {
    if (k == 0 || n == 0) return 0;
    const index me = block_.thread(), wanted_count = static_cast<index>(k < n ? k : n);
    const auto length = static_cast<index>(n);
    T values[Items];  // all are on their way before the first one is used
    FMOE_UNROLL
    for (index i = 0; i < Items; ++i)
      values[i] = value(i * Threads + me < length ? extent{me} + i * Threads : extent{0});
    key keys[Items], most = 0;  // 0 is no number's key
    FMOE_UNROLL
    for (index i = 0; i < Items; ++i) {
      keys[i] = i * Threads + me < length ? key_of(values[i]) : key{0};
      if (most < keys[i]) most = keys[i];
    }
    const key bound = bound_of(most, wanted_count);
    index mine = 0;
    FMOE_UNROLL
    for (index i = 0; i < Items; ++i) mine += keys[i] >= bound;
    const sums found = sum_of_threads(mine);
    if (found.all > Threads)
      return search(keys, static_cast<index>(n), wanted_count, value, wanted, put);

    index at = found.before;
    FMOE_UNROLL
    for (index i = 0; i < Items; ++i)
      if (keys[i] >= bound) {
        keys_[at] = keys[i];
        places_[at++] = i * Threads + me;
      }
    block_.sync();
    const bool is_one = me < found.all;
    const key own = is_one ? key(keys_[me]) : key{0};
    const index place = is_one ? index(places_[me]) : 0;
    index before = 0;
    if (is_one)
      for (index j = 0; j < found.all; ++j) {
        const key other = keys_[j];
        before += other > own || (other == own && places_[j] < place);
      }
    const bool is_kept = is_one && before < wanted_count && wanted(value(extent{place}));
    chosen_[me] = is_kept ? place : none;
    const index count = block_.count(is_kept);
    if (is_kept) {
      index to = 0;
      for (index j = 0; j < found.all; ++j) to += chosen_[j] < place;
      put(extent{place}, to);
    }
    return count;
  }

 private:
  static constexpr unsigned lanes = 32, warps = Threads / lanes;
  static constexpr index none = ~index{0};

  struct sums {
    index before, all;
  };

  // Returns a key, not 0, that the greatest keys of at least k threads reach, if so many have one.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE key bound_of(key most, index k) {
    key bound = 0;
    for (unsigned bit = 8 * sizeof(key); bit-- > 0;) {
      const key higher = bound | key{1} << bit;
      const index reached = block_.count(most >= higher);
      if (reached >= k) bound = higher;
      if (reached == k) break;
    }
    return bound == 0 ? key{1} : bound;
  }

  // The sum of what all threads say, and of what those before this one say.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE sums sum_of_threads(index mine) {
    const unsigned lane = block_.thread() % lanes, warp = block_.thread() / lanes;
    const index upto = sum_upto(mine);
    block_.sync();  // the sums of the last time have been read
    if (lane == lanes - 1) warp_sums_[warp] = upto;
    block_.sync();
    const index warps_upto = sum_upto(lane < warps ? index(warp_sums_[lane]) : 0);
    const index before = block_.shuffle(warps_upto, warp == 0 ? 0 : warp - 1);
    return {(warp == 0 ? 0 : before) + upto - mine, block_.shuffle(warps_upto, warps - 1)};
  }
  // The sum of what the lanes up to this one say.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE index sum_upto(index mine) {
    const unsigned lane = block_.thread() % lanes;
    FMOE_UNROLL
    for (unsigned step = 1; step < lanes; step *= 2) {
      const index other = block_.shuffle(mine, lane - step);
      if (lane >= step) mine += other;
    }
    return mine;
  }

  // Finds the k-th greatest key bit by bit, and takes what is above it and the first ones that
  // equal it.
  FMOE_CALLS_BLOCK
  template <class Value, class Wanted, class Put>
  FMOE_DEVICE index search(key (&keys)[Items], index n, index k, const Value& value,
                           const Wanted& wanted, const Put& put) {
    key limit = 0;
    for (unsigned bit = 8 * sizeof(key); bit-- > 0;) {
      const key higher = limit | key{1} << bit;
      index mine = 0;
      FMOE_UNROLL
      for (index i = 0; i < Items; ++i) mine += keys[i] >= higher;
      if (sum_of_threads(mine).all >= k) limit = higher;
    }
    index above = 0;
    FMOE_UNROLL
    for (index i = 0; i < Items; ++i) above += keys[i] > limit;
    const index equals = k - sum_of_threads(above).all;
    index seen = 0, written = 0;
    FMOE_UNROLL_BY(1)
    for (index i = 0; i < Items; ++i) {  // the next key moves to the first register
      const index at = i * Threads + block_.thread();
      const key own = keys[0];
      FMOE_UNROLL
      for (index next = 0; next + 1 < Items; ++next) keys[next] = keys[next + 1];
      const bool is_equal = at < n && own == limit;
      if (block_.count(at < n && own >= limit) == 0) continue;
      const sums equal = sum_of_threads(is_equal);
      const bool is_kept = at < n && (own > limit || (is_equal && seen + equal.before < equals)) &&
                           wanted(value(extent{at}));
      const sums kept = sum_of_threads(is_kept);
      if (is_kept) put(extent{at}, written + kept.before);
      seen += equal.all;
      written += kept.all;
    }
    return written;
  }

  Block& block_;
  decltype(std::declval<Block&>().template array<key>(0)) keys_;
  decltype(std::declval<Block&>().template array<index>(0)) places_, chosen_, warp_sums_;
};

// How a kernel selects: rows of at most Items * Threads numbers, of which Threads are kept at most.
template <unsigned Items, unsigned Threads>
struct in_registers {
  static constexpr unsigned threads = Threads;
  static constexpr unsigned blocks_each = Threads <= 512 ? 2 : 1;
  static constexpr extent most = Items * Threads, most_kept = 256;
  template <class T>
  static constexpr extent shared_bytes =
      Threads * (sizeof(T) + 2 * sizeof(index)) + Threads / 32 * sizeof(index) + 64;
  template <class T, class Block>
  using selector = register_selector<T, Block, Items, Threads>;
};

// The same for rows of at most 32 * Items numbers, a warp a row: each entry counts those before it.
template <class T, unsigned Items>
struct warp_select_kernel {
  static constexpr unsigned threads = warps::threads, lanes = 32;
  static constexpr extent shared_bytes = 0, most = lanes * Items;

  rows_at<const T> a;
  selections_at<T> to;
  extent tokens, rows, columns;
  bool takes_zeros;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const auto [token, r, exists] = warps::row_of(b, tokens, rows);
    if (!exists) return;  // a whole warp
    using key = typename number<T>::bits;
    const T* const x = a.row(token) + r * columns;
    const selection_row<T> s = to.row(token, r);
    const unsigned lane = b.thread() % lanes;
    const auto n = static_cast<unsigned>(columns);
    T values[Items];
    key keys[Items];
    index before[Items] = {};
    FMOE_UNROLL
    for (unsigned i = 0; i < Items; ++i) {
      const unsigned at = i * lanes + lane;
      values[i] = at < n ? x[at] : T(0);
      keys[i] = at < n ? key_of(values[i]) : key{0};  // no number's
    }
    FMOE_UNROLL
    for (unsigned j = 0; j < Items; ++j)
      for (unsigned l = 0; l < lanes && j * lanes + l < n; ++l) {
        const key other = b.shuffle(keys[j], l);
        FMOE_UNROLL
        for (unsigned i = 0; i < Items; ++i)
          before[i] += other > keys[i] || (other == keys[i] && j * lanes + l < i * lanes + lane);
      }
    index written = 0;
    FMOE_UNROLL
    for (unsigned i = 0; i < Items; ++i) {
      const bool is_kept =
          i * lanes + lane < n && before[i] < to.most && (takes_zeros || values[i] != 0);
      const unsigned kept = b.ballot(is_kept);
      if (is_kept) {
        const index place = written + count_ones(kept & ((1u << lane) - 1));
        s.values()[place] = values[i];
        s.indices()[place] = i * lanes + lane;
      }
      written += count_ones(kept);
    }
    if (lane == 0) s.count() = written;
  }
};

}  // namespace fmoe::cuda
