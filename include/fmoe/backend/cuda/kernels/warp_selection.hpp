// SPDX-License-Identifier: MIT
// What a warp does with a row of a selection. Entries stay in the order of their indices: 32 of
// them at a time are read, and those that are kept are written without gaps.
#pragma once

#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/kernels/select.hpp>

namespace fmoe::cuda {

FMOE_DEVICE index count_ones(unsigned bits) {
#if defined(__CUDA_ARCH__)
  return static_cast<index>(__popc(bits));
#else
  return static_cast<index>(std::popcount(bits));
#endif
}

// The lanes of a warp, which join what each of them has. All lanes get the same bits.
template <class T, class Block>
class warp_of {
 public:
  static constexpr unsigned lanes = 32;

  FMOE_CALLS_BLOCK
  FMOE_DEVICE explicit warp_of(Block& b) : block_(b), lane_(b.thread() % lanes) {}

  FMOE_DEVICE unsigned lane() const { return lane_; }

  // Returns the greatest of n numbers, or NaN if one is NaN.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE T greatest_of(const T* x, extent n) const {
    T most = -std::numeric_limits<T>::infinity();
    for (extent i = lane_; i < n; i += lanes) most = larger(most, x[i]);
    for (unsigned half = lanes / 2; half > 0; half /= 2)
      most = larger(most, block_.shuffle_xor(most, half));
    return most;
  }

  // Returns the sum of exp(x - top).
  FMOE_CALLS_BLOCK
  FMOE_DEVICE T sum_of_exponentials(const T* x, extent n, T top) const {
    compensated_sum<T> mine;
    for (extent i = lane_; i < n; i += lanes) mine.add(exponential_of(x[i], top));
    return sum(mine.total);
  }

  FMOE_CALLS_BLOCK
  FMOE_DEVICE T sum(T mine) const {
    for (unsigned half = lanes / 2; half > 0; half /= 2)
      mine = sum_of(mine, block_.shuffle_xor(mine, half));
    return mine;
  }

  // Writes those of `count` entries that are kept. entry(i) returns number i as it becomes, with
  // its index, and whether it is kept; it is called before any of these entries is written.
  FMOE_CALLS_BLOCK
  template <class Entry>
  FMOE_DEVICE void keep(const selection_row<T>& to, index count, const Entry& entry) const {
    index kept = 0;
    for (index first = 0; first < count; first += lanes) {
      const index i = first + lane_;
      T value = 0;
      index place = 0;
      const bool is_kept = i < count && entry(i, value, place);
      const unsigned all = block_.ballot(is_kept);
      if (is_kept) {
        const index at = kept + count_ones(all & ((1u << lane_) - 1));
        to.values()[at] = value;
        to.indices()[at] = place;
      }
      kept += count_ones(all);
    }
    if (lane_ == 0) to.count() = kept;
  }

 private:
  Block& block_;
  unsigned lane_;
};

// As weigh_rows, a warp a row.
template <class T>
struct weigh_kernel {
  static constexpr unsigned threads = warps::threads;
  static constexpr extent shared_bytes = 0;

  weigh_rows<T> of;
  extent tokens;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const auto [token, r, exists] = warps::row_of(b, tokens, of.rows);
    if (!exists) return;  // a whole warp
    const selection_row<T> s = of.selections.row(token, r);
    const warp_of<T, Block> warp(b);
    const index count = s.count();
    const bool is_softmax = of.weights == weighting::softmax ||
                            (of.weights == weighting::softmax_of_all && of.columns > 0);
    T top = 0, whole = 1;
    if (is_softmax) {
      const bool all = of.weights == weighting::softmax_of_all;
      const T* const x = all ? of.scores.row(token) + r * of.columns : s.values();
      const extent n = all ? of.columns : count;
      top = warp.greatest_of(x, n);
      whole = warp.sum_of_exponentials(x, n, top);
    }
    if (of.weights == weighting::normalized) {
      T mine = 0;
      for (index k = warp.lane(); k < count; k += warp.lanes) mine = sum_of(mine, s.values()[k]);
      whole = warp.sum(mine);
    }
    const bool is_share = of.weights == weighting::normalized && whole != 0;
    warp.keep(s, count, [&](index k, T& value, index& place) {
      value = s.values()[k];
      place = s.indices()[k];
      if (is_share) value = quotient_of(value, whole);
      if (is_softmax) value = quotient_of(exponential_of(value, top), whole);
      if (of.weights == weighting::one) value = 1;
      if (of.weights == weighting::relu && value < 0) value = 0;
      return value != 0;
    });
  }
};

// As rescale_rows, a warp a row.
template <class T>
struct rescale_kernel {
  static constexpr unsigned threads = warps::threads;
  static constexpr extent shared_bytes = 0;

  rescale_rows<T> of;
  extent tokens;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const auto [token, r, exists] = warps::row_of(b, tokens, of.rows);
    if (!exists) return;  // a whole warp
    const selection_row<T> a = of.from.row(token, r);
    const T* const factors = of.factors + r * of.table_row;
    const warp_of<T, Block> warp(b);
    warp.keep(of.to.row(token, r), a.count(), [&](index k, T& value, index& place) {
      place = a.indices()[k];
      value = product_of(a.values()[k], factors[place]);
      return value != 0;
    });
  }
};

// As gather_choices, a warp a token.
template <class T>
struct choices_kernel {
  static constexpr unsigned threads = warps::threads;
  static constexpr extent shared_bytes = 0;

  gather_choices<T> of;
  extent tokens;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const auto [token, r, exists] = warps::row_of(b, tokens, 1);
    if (!exists) return;  // a whole warp
    const selection_row<T> s = of.to.row(token, r);
    const T* const scores = of.scores.row(token);
    const warp_of<T, Block> warp(b);
    warp.keep(s, static_cast<index>(of.to.keep), [&](index e, T& value, index& place) {
      value = scores[e];
      place = e;
      return s.indices()[e] != 0;
    });
  }
};

// As mass_rows, a warp a row: each lane finds the next entry of its part.
template <class T>
struct mass_kernel {
  static constexpr unsigned threads = warps::threads;
  static constexpr extent shared_bytes = 0;

  mass_rows<T> of;
  extent tokens;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const auto [token, r, exists] = warps::row_of(b, tokens, of.rows);
    if (!exists) return;  // a whole warp
    using key = typename number<T>::bits;
    const T* const x = of.a.row(token) + r * of.columns;
    const selection_row<T> s = of.to.row(token, r);
    const warp_of<T, Block> warp(b);
    const auto columns = static_cast<index>(of.columns);
    const T top = warp.greatest_of(x, columns), whole = warp.sum_of_exponentials(x, columns, top);
    const auto is_ahead = [](key a, index i, key other, index j) {
      return a > other || (a == other && i < j);
    };
    double sum = 0;
    key last = ~key{0};
    index last_place = 0, kept = 0;
    while (kept < columns && (kept == 0 || !(sum >= of.mass))) {
      key most = 0;  // no number's
      index place = columns;
      for (index j = warp.lane(); j < columns; j += warp.lanes) {
        const key mine = key_of(x[j]);
        const bool is_left = kept == 0 || is_ahead(last, last_place, mine, j);
        if (is_left && mine > most) {  // the first of equals
          most = mine;
          place = j;
        }
      }
      for (unsigned half = warp.lanes / 2; half > 0; half /= 2) {
        const key other = b.shuffle_xor(most, half);
        const index other_place = b.shuffle_xor(place, half);
        if (is_ahead(other, other_place, most, place)) {
          most = other;
          place = other_place;
        }
      }
      last = most;
      last_place = place;
      ++kept;
      sum += static_cast<double>(quotient_of(exponential_of(x[place], top), whole));
    }
    warp.keep(s, columns, [&](index j, T& value, index& place) {
      value = x[j];
      place = j;
      return !is_ahead(last, last_place, key_of(value), j);
    });
  }
};

// As expand_rows; `lanes` threads share a row, and each writes its own columns.
template <class T>
struct expand_lanes {
  expand_rows<T> of;
  extent lanes;

  FMOE_DEVICE void operator()(extent i) const {
    const extent lane = i % lanes, token = i / lanes / of.rows, r = i / lanes % of.rows;
    const selection_row<T> a = of.from.row(token, r);
    T* const row = of.c.row(token) + r * of.columns;
    for (extent n = lane; n < of.columns; n += lanes) row[n] = 0;
    const index count = a.count();
    for (index k = 0; k < count; ++k)
      if (const index n = a.indices()[k]; n % lanes == lane) row[n] = a.values()[k];
  }
};

// As sample_rows, a warp an entry. S is the type of the table in memory. A lane takes four
// neighbours of every 128, whether one access reads them or four, so that the sum has one order.
template <class T, class S = T>
struct sample_kernel {
  static constexpr unsigned threads = warps::threads;
  static constexpr extent shared_bytes = 0;

  selections_at<T> from, to;
  rows_at<const T> x;
  const S* table;
  extent tokens, rows, depth, table_row;
  bool aligned;
  passes<T> finish;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const auto [token, i, exists] = warps::row_of(b, tokens, rows * from.keep);
    if (!exists) return;  // a whole warp
    const extent entry = i % from.keep, r = i / from.keep;
    const selection_row<T> a = from.row(token, r), c = to.row(token, r);
    const warp_of<T, Block> warp(b);
    if (entry == 0 && warp.lane() == 0) c.count() = a.count();
    if (entry >= a.count()) return;  // a whole warp
    const S* const row = table + r * table_row + a.indices()[entry] * depth;
    const T* const left = x.row(token);
    const auto n = static_cast<index>(depth);
    T mine = 0;
    const index whole = aligned ? n / each * each : 0, first = warp.lane() * each,
                step = each * warp.lanes,
                rounds = first < whole ? (whole - first + step - 1) / step : 0;
    FMOE_UNROLL_BY(4)
    for (index round = 0; round < rounds; ++round) {
      const index k = first + round * step;
      const pack<T, each> u = load_pack<T, each>(left + k);
      const pack<S, each> w = load_pack<S, each>(row + k);
      FMOE_UNROLL
      for (unsigned e = 0; e < each; ++e) mine = fused(u.of[e], T(widened(w.of[e])), mine);
    }
    for (index k = warp.lane() * each; k < n; k += each * warp.lanes)
      for (index e = k < whole ? each : 0; e < each && k + e < n; ++e)
        mine = fused(left[k + e], T(widened(row[k + e])), mine);
    const T sum = warp.sum(mine);
    if (warp.lane() != 0) return;
    c.indices()[entry] = a.indices()[entry];
    c.values()[entry] = product_of(finish(sum, token, entry), a.values()[entry]);
  }

 private:
  static constexpr unsigned each = 4;
};

}  // namespace fmoe::cuda
