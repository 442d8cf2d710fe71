// SPDX-License-Identifier: MIT
// Selections of the greatest numbers, exactly: the greatest first, NaN before all, and the lower
// place first among equals. A block makes a row. It finds the k-th greatest number eight bits at a
// time, by counts in shared memory, and then writes the entries in the order of their places.
#pragma once

#include <fmoe/backend/cuda/kernels/selection.hpp>

namespace fmoe::cuda {

// Integers in the order of the numbers; those of 0 and -0, and those of all NaN, are the same.
template <class T>
FMOE_DEVICE typename number<T>::bits key_of(T x) {
  using bits = typename number<T>::bits;
  constexpr bits sign = bits{1} << (8 * sizeof(T) - 1);
  const bits b = number<T>(x).to_bits(), key = (b & sign) != 0 ? ~b : b | sign;
  return x != x ? ~bits{0} : x == 0 ? sign : key;
}

// The shared memory of a selection: counts of digits, and sums of warps.
template <class Block>
class selector {
 public:
  static constexpr unsigned threads = 256, lanes = 32, digits = 256, digit_bits = 8;
  static constexpr extent shared_bytes = (digits + 2 + threads / lanes + 1) * sizeof(index) + 64;

  FMOE_CALLS_BLOCK
  FMOE_DEVICE explicit selector(Block& b)
      : block_(b),
        counts_(b.template array<index>(digits)),
        found_(b.template array<index>(2)),
        warp_sums_(b.template array<index>(threads / lanes)) {}

  // Calls put(i, place) for each of the k greatest of n numbers value(i); `place` counts those
  // before it. Entries that wanted(value) refuses are left out. Returns the number of the others.
  // All threads of the block call this with the same n and k.
  FMOE_CALLS_BLOCK
  template <class Value, class Wanted, class Put>
  FMOE_DEVICE index greatest(extent n, extent k, const Value& value, const Wanted& wanted,
                             const Put& put) {
    if (k == 0 || n == 0) return 0;
    const auto last = last_of(n, k, value);
    return write(n, value, wanted, put, last.limit, last.equals);
  }

  // Returns the key of the k-th greatest number, or of the least if there are fewer, and a key
  // above all others if k is 0.
  FMOE_CALLS_BLOCK
  template <class Value>
  FMOE_DEVICE auto key_of_rank(extent n, extent k, const Value& value) {
    using key = decltype(key_of(value(extent{0})));
    if (k == 0 || n == 0) return ~key{0};
    if constexpr (sizeof(key) == sizeof(index))
      if (n <= threads) return key_among_few(static_cast<index>(n), k, value);
    return last_of(n, k, value).limit;
  }

  // The same for all numbers that are wanted.
  template <class Value, class Wanted, class Put>
  FMOE_DEVICE index all_of(extent n, const Value& value, const Wanted& wanted, const Put& put) {
    using key = decltype(key_of(value(extent{0})));
    return n == 0 ? 0 : write(n, value, wanted, put, key{0}, 0);
  }

  struct sums {
    index before, all;
  };
  // Returns the sum of what all threads say, and of what those before this one say.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE sums sum_of_threads(index mine) {
    const unsigned lane = block_.thread() % lanes, warp = block_.thread() / lanes;
    index upto = mine;
    FMOE_UNROLL
    for (unsigned step = 1; step < lanes; step *= 2) {
      const index other = block_.shuffle(upto, lane - step);
      if (lane >= step) upto += other;
    }
    block_.sync();  // the sums of the last time have been read
    if (lane == lanes - 1) warp_sums_[warp] = upto;
    block_.sync();
    sums made{upto - mine, 0};
    FMOE_UNROLL
    for (unsigned w = 0; w < threads / lanes; ++w) {
      const index here = warp_sums_[w];
      if (w < warp) made.before += here;
      made.all += here;
    }
    return made;
  }

 private:
  template <class Key>
  struct rank {
    Key limit;     // of the k-th greatest
    index equals;  // how many that have this key are among the k
  };
  // Finds the k-th greatest of n numbers.
  FMOE_CALLS_BLOCK
  template <class Value>
  FMOE_DEVICE auto last_of(extent n, extent k, const Value& value) {
    using key = decltype(key_of(value(extent{0})));
    if (k > n) k = n;
    key limit = 0, known = 0;  // the bits of the k-th greatest, and which of them are known
    index equals = static_cast<index>(k);
    for (unsigned shift = 8 * sizeof(key); shift != 0;) {
      shift -= digit_bits;
      counts_[block_.thread()] = 0;
      block_.sync();
      for (extent i = block_.thread(); i < n; i += threads)
        if (const key x = key_of(value(i)); (x & known) == limit)
          block_.add(counts_, x >> shift & (digits - 1), index{1});
      block_.sync();
      equals = find_digit(equals);
      limit |= key{found_[0]} << shift;
      known |= key{digits - 1} << shift;
    }
    return rank<key>{limit, equals};
  }

  // Each thread counts the numbers before its own.
  FMOE_CALLS_BLOCK
  template <class Value>
  FMOE_DEVICE index key_among_few(index n, extent k, const Value& value) {
    const index me = block_.thread(), own = me < n ? key_of(value(extent{me})) : 0;
    counts_[me] = own;
    block_.sync();
    index before = 0;
    for (index i = 0; i < n; ++i) {
      const index other = counts_[i];
      before += other > own || (other == own && i < me);
    }
    if (me < n && before + 1 == (k < n ? k : n)) found_[0] = own;
    block_.sync();
    return found_[0];
  }

  // Finds the digit of the number that `count` numbers reach. Returns how many of those with this
  // digit there are among them.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE index find_digit(index count) {
    const unsigned digit = digits - 1 - block_.thread();
    const index mine = counts_[digit], before = sum_of_threads(mine).before;
    if (before < count && count <= before + mine) {
      found_[0] = digit;
      found_[1] = count - before;
    }
    block_.sync();
    return found_[1];
  }

  // Writes what is above the limit, and the first `equals` numbers that equal it. Most stretches of
  // a row have nothing to write.
  FMOE_CALLS_BLOCK
  template <class Key, class Value, class Wanted, class Put>
  FMOE_DEVICE index write(extent n, const Value& value, const Wanted& wanted, const Put& put,
                          Key limit, index equals) {
    index seen = 0, written = 0;
    for (extent first = 0; first < n; first += threads) {
      const extent i = first + block_.thread();
      const bool is_inside = i < n;
      const auto x = value(is_inside ? i : extent{0});
      const Key key = key_of(x);
      const bool is_equal = is_inside && key == limit;
      if (block_.count(is_inside && key >= limit) == 0) continue;
      const sums equal = sum_of_threads(is_equal);
      const bool is_kept =
          is_inside && wanted(x) && (key > limit || (is_equal && seen + equal.before < equals));
      const sums kept = sum_of_threads(is_kept);
      if (is_kept) put(i, written + kept.before);
      seen += equal.all;
      written += kept.all;
    }
    return written;
  }

  Block& block_;
  decltype(std::declval<Block&>().template array<index>(0)) counts_, found_, warp_sums_;
};

// How a kernel selects: rows of any length, by digits.
struct by_digits {
  static constexpr unsigned threads = 256, blocks_each = 2;
  static constexpr extent most = 0;  // numbers in registers
  template <class T>
  static constexpr extent shared_bytes = 2048;
  template <class T, class Block>
  using selector = cuda::selector<Block>;
};

// The k greatest entries of each row, or all that are not 0, with their scores.
template <class T, class How = by_digits>
struct select_kernel {
  static constexpr unsigned threads = How::threads, blocks_each = How::blocks_each;
  static constexpr extent shared_bytes = How::template shared_bytes<T>;

  rows_at<const T> a;
  selections_at<T> to;
  extent rows, columns;
  bool takes_all;    // that are wanted
  bool takes_zeros;  // a score of 0 is wanted

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent token = b.block() / rows, r = b.block() % rows;
    const T* const x = a.row(token) + r * columns;
    const selection_row<T> s = to.row(token, r);
    typename How::template selector<T, Block> select(b);
    const auto value = [&](extent i) { return x[i]; };
    const auto wanted = [&](T v) { return takes_zeros || v != 0; };
    const auto put = [&](extent i, index place) {
      s.values()[place] = x[i];
      s.indices()[place] = static_cast<index>(i);
    };
    index count = 0;
    if constexpr (std::is_same_v<How, by_digits>)
      if (takes_all) count = select.all_of(columns, value, wanted, put);
    if (!takes_all) count = select.greatest(columns, to.most, value, wanted, put);
    if (b.thread() == 0) s.count() = count;
  }
};

inline constexpr extent list_room = 256;  // for entries of each list of a sum

// The kept entries of two lists, in shared memory.
template <class T, class Block>
class list_pair {
 public:
  static constexpr extent room = list_room;

  FMOE_CALLS_BLOCK
  FMOE_DEVICE explicit list_pair(Block& b)
      : values_(b.template array<T>(2 * room)),
        places_(b.template array<index>(2 * room)) {}

  FMOE_CALLS_BLOCK
  FMOE_DEVICE void put(unsigned list, index at, T value, extent place) const {
    values_[list * room + at] = value;
    places_[list * room + at] = static_cast<index>(place);
  }

  // Sum number i adds entry i / seconds of the first list to entry i % seconds of the second one.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE T sum(extent i, index seconds) const {
    const T first = values_[i / seconds], second = values_[room + i % seconds];
    return sum_of(first, second);
  }
  // Its place among the sums of whole lists.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE index place(extent i, index seconds, extent length) const {
    const index first = places_[i / seconds], second = places_[room + i % seconds];
    return static_cast<index>(first * length + second);
  }

 private:
  decltype(std::declval<Block&>().template array<T>(0)) values_;
  decltype(std::declval<Block&>().template array<index>(0)) places_;
};

// The `keep` greatest sums of the `each` greatest entries of two lists, which follow each other.
template <class T, class How = by_digits>
struct product_select_kernel {
  static constexpr unsigned threads = How::threads, blocks_each = How::blocks_each;
  static constexpr extent most_each = list_room;
  static constexpr extent shared_bytes =
      How::template shared_bytes<T> + 2 * list_room * (sizeof(T) + sizeof(index));

  rows_at<const T> a;
  selections_at<T> to;
  extent rows, list, each;
  bool takes_zeros;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent token = b.block() / rows, r = b.block() % rows;
    const selection_row<T> s = to.row(token, r);
    typename How::template selector<T, Block> select(b);
    const list_pair<T, Block> lists(b);
    index counts[2];
    for (unsigned l = 0; l < 2; ++l) {
      const T* const x = a.row(token) + (2 * r + l) * list;
      counts[l] = select.greatest(
          list, each, [&](extent i) { return x[i]; }, [](T) { return true; },
          [&](extent i, index at) { lists.put(l, at, x[i], i); });
    }
    b.sync();
    const index count = select.greatest(
        extent{counts[0]} * counts[1], to.most, [&](extent i) { return lists.sum(i, counts[1]); },
        [&](T v) { return takes_zeros || v != 0; },
        [&](extent i, index at) {
          s.values()[at] = lists.sum(i, counts[1]);
          s.indices()[at] = lists.place(i, counts[1], list);
        });
    if (b.thread() == 0) s.count() = count;
  }
};

// Expert choice: a block for each expert marks the tokens that it ranks highest, in the room of the
// indices of their selections.
template <class T>
struct choose_kernel {
  static constexpr unsigned threads = 256;
  static constexpr extent shared_bytes = 2048;

  rows_at<const T> ranked;
  selections_at<T> to;
  extent tokens, capacity;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const extent expert = b.block();
    for (extent t = b.thread(); t < tokens; t += threads) to.row(t, 0).indices()[expert] = 0;
    b.sync();
    selector<Block> select(b);
    select.greatest(
        tokens, capacity, [&](extent t) { return ranked.row(t)[expert]; }, [](T) { return true; },
        [&](extent t, index) { to.row(t, 0).indices()[expert] = 1; });
  }
};

// Makes selections of the marks, with the scores of the experts.
template <class T>
struct gather_choices {
  rows_at<const T> scores;
  selections_at<T> to;

  FMOE_DEVICE void operator()(extent token) const {
    const selection_row<T> s = to.row(token, 0);
    s.count() = 0;
    for (extent e = 0; e < to.keep; ++e)
      if (s.indices()[e] != 0) s.add(scores.row(token)[e], e);
  }
};

// Does entry i come before entry j?
template <class T>
FMOE_DEVICE bool is_before(const T* x, extent i, extent j) {
  const auto a = key_of(x[i]), b = key_of(x[j]);
  return a > b || (a == b && i < j);
}

// The fewest of the greatest entries whose softmax sums to `mass`, but at least one. A thread makes
// a row.
template <class T>
struct mass_rows {
  rows_at<const T> a;
  selections_at<T> to;
  extent rows, columns;
  double mass;

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / rows, r = i % rows;
    const T* const x = a.row(token) + r * columns;
    const selection_row<T> s = to.row(token, r);
    s.count() = 0;
    if (columns == 0) return;
    const T top = greatest_of(x, columns), whole = sum_of_exponentials(x, columns, top);
    double sum = 0;
    extent last = columns;  // of the kept entries; none yet
    extent kept = 0;
    do {
      extent next = columns;  // the first of those that are not kept
      for (extent j = 0; j < columns; ++j) {
        const bool is_left = last == columns || is_before(x, last, j);
        if (is_left && (next == columns || is_before(x, j, next))) next = j;
      }
      last = next;
      ++kept;
      sum += static_cast<double>(quotient_of(exponential_of(x[last], top), whole));
    } while (kept < columns && !(sum >= mass));
    for (extent j = 0; j < columns; ++j)
      if (j == last || is_before(x, j, last)) s.add(x[j], j);
  }
};

}  // namespace fmoe::cuda
