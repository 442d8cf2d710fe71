// SPDX-License-Identifier: MIT
// Functions of rows whose axis is cut over ranks: each part tells its greatest number or its sum,
// and every rank makes its own part of the result of what all have told. Sums are in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <fmoe/base/real_functions.hpp>
#include <fmoe/distributed/exchange_tokens.hpp>

namespace fmoe::detail {

// The tau with which the sum of [z - tau]_+^power is 1, to the last bit: z is at most 0, and 0 is
// there. The sum falls with tau.
inline double entmax_threshold(std::span<const double> z, double power) {
  const auto is_above = [&](double tau) {
    double sum = 0;
    for (const double v : z)
      if (v > tau) sum += power == 2 ? (v - tau) * (v - tau) : power_of(v - tau, power);
    return sum >= 1;
  };
  double low = -1, high = 0;
  for (double middle = -0.5; middle != low && middle != high; middle = low + (high - low) / 2)
    (is_above(middle) ? low : high) = middle;
  return low;
}

template <class T>
class row_merge_run {
 public:
  // The parts of this rank hold rows for all tokens, `outer` for each of them.
  row_merge_run(communicator& ranks, const axis_cut& cut, const call_tokens& tokens, extent outer,
                std::vector<const T*> parts)
      : ranks_(ranks),
        cut_(cut),
        tokens_(tokens),
        outer_(outer),
        rows_(tokens.all() * outer),
        parts_(std::move(parts)) {}

  // Writes this rank's parts of f(x).
  void apply(row_function f, double parameter, const std::vector<T*>& to) {
    const auto n = static_cast<double>(cut_.length);
    if (f == row_function::softmax) {
      const std::vector<T> top = greatest([](T x) { return x; });
      const auto e = [&](extent r, T x) { return exponential(double{x} - double{top[r]}); };
      const std::vector<double> sum = sums(e);
      return write(to, [&](extent r, T x) { return e(r, x) / sum[r]; });
    }
    if (f == row_function::entmax) return apply_entmax(parameter, to);
    std::vector<double> middle(rows_, 0);
    if (f == row_function::layer_norm) {
      middle = sums([](extent, T x) { return double{x}; });
      for (double& m : middle) m /= n;
    }
    std::vector<double> factor =
        sums([&](extent r, T x) { return (double{x} - middle[r]) * (double{x} - middle[r]); });
    for (double& s : factor)
      s = f == row_function::clamped_rms_norm ? std::sqrt(n) / std::max(std::sqrt(s), parameter)
                                              : 1 / std::sqrt(s / n + parameter);
    write(to, [&](extent r, T x) { return (double{x} - middle[r]) * factor[r]; });
  }

  // Writes this rank's parts of the softmax of the entries that reach min(max, bound). A token has
  // `count` bounds: one for each row, or fewer, which are repeated.
  void apply_bounded_softmax(const T* bounds, extent count, const std::vector<T*>& to) {
    const std::vector<T> top = greatest([](T x) { return x; });
    const auto e = [&](extent r, T x) {
      const T bound = bounds[r / outer_ * count + r % outer_ % count],
              least = bound > top[r] ? top[r] : bound;
      return x < least ? 0 : exponential(double{x} - double{top[r]});
    };
    const std::vector<double> sum = sums(e);
    write(to, [&](extent r, T x) { return e(r, x) / sum[r]; });
  }

  // Writes one number of each row on every rank.
  void apply(row_norm f, T* to) {
    if (f == row_norm::max) {
      std::ranges::copy(greatest([](T x) { return std::abs(x); }), to);
      return;
    }
    const std::vector<double> sum = sums([f](extent, T x) {
      const double v = double{x};
      return f == row_norm::l1 ? std::abs(v) : f == row_norm::l2 ? v * v : v;
    });
    for (extent r = 0; r < rows_; ++r)
      to[r] = static_cast<T>(f == row_norm::l2     ? std::sqrt(sum[r])
                             : f == row_norm::mean ? sum[r] / static_cast<double>(cut_.length)
                                                   : sum[r]);
  }

 private:
  extent count(extent part) const { return cut_.count(cut_.own(part)); }

  // The greatest f(x) of each row over all ranks; NaN if there is one.
  template <class F>
  std::vector<T> greatest(const F& f) {
    std::vector<T> most(rows_, -std::numeric_limits<T>::infinity());
    for (extent i = 0; i < parts_.size(); ++i)
      for (extent r = 0; r < rows_; ++r)
        for (const T x : std::span(parts_[i] + r * count(i), count(i)))
          if (!(f(x) <= most[r]) && !std::isnan(most[r])) most[r] = f(x);
    // What is not a number is greater than every number on its way, so that it arrives.
    std::vector<T> is_nan(rows_);
    for (extent r = 0; r < rows_; ++r) is_nan[r] = std::isnan(most[r]) ? T(1) : T(0);
    most.insert(most.end(), is_nan.begin(), is_nan.end());
    for (T& m : most) m = std::isnan(m) ? T(0) : m;
    ranks_.all_reduce(std::span(most), fold::max);
    for (extent r = 0; r < rows_; ++r)
      if (most[rows_ + r] > 0) most[r] = std::numeric_limits<T>::quiet_NaN();
    most.resize(rows_);
    return most;
  }

  // The sum of f(row, x) over each row: within a part, then over parts and ranks as fold_rows adds.
  template <class F>
  std::vector<double> sums(const F& f) {
    std::vector<double> sum(parts_.size() * rows_, 0);
    for (extent i = 0; i < parts_.size(); ++i)
      for (extent r = 0; r < rows_; ++r)
        for (const T x : std::span(parts_[i] + r * count(i), count(i)))
          sum[i * rows_ + r] += f(r, x);
    fold_rows(std::span(sum), rows_, fold::sum);
    sum.resize(rows_);
    ranks_.all_reduce(std::span(sum));
    return sum;
  }

  template <class F>
  void write(const std::vector<T*>& to, const F& f) {
    for (extent i = 0; i < parts_.size(); ++i)
      for (extent r = 0; r < rows_; ++r)
        for (extent k = 0; k < count(i); ++k)
          to[i][r * count(i) + k] = static_cast<T>(f(r, parts_[i][r * count(i) + k]));
  }

  // Only entries above max - 1 / (alpha - 1) can be greater than 0. They travel to the owner of the
  // token, who finds the threshold of all of them in their order, and tells it.
  void apply_entmax(double alpha, const std::vector<T*>& to) {
    const std::vector<T> top = greatest([](T x) { return x; });
    const double scale = alpha - 1, power = 1 / scale;
    const auto z = [&](extent r, T x) { return scale * (double{x} - double{top[r]}); };
    std::vector<T> mine;
    std::vector<std::uint32_t> counts(rows_);
    for (extent r = 0; r < rows_; ++r)
      for (extent i = 0; i < parts_.size(); ++i)
        for (const T x : std::span(parts_[i] + r * count(i), count(i)))
          if (z(r, x) > -1) {
            mine.push_back(x);
            ++counts[r];
          }
    const extent P = ranks_.size(), own = tokens_.own() * outer_;
    std::vector<std::uint32_t> their_counts(P * own);
    ranks_.all_to_all(std::span<const std::uint32_t>(counts), tokens_.times(outer_),
                      std::span(their_counts), std::vector<extent>(P, own));
    std::vector<extent> out(P, 0), in(P, 0);
    for (extent p = 0, r = 0; p < P; ++p) {
      for (extent k = 0; k < tokens_.of_rank[p] * outer_; ++k) out[p] += counts[r++];
      for (extent k = 0; k < own; ++k) in[p] += their_counts[p * own + k];
    }
    std::vector<T> theirs(std::accumulate(in.begin(), in.end(), extent{0}));
    ranks_.all_to_all(std::span<const T>(mine), out, std::span(theirs), in);

    std::vector<extent> at(P, 0);
    for (extent p = 1; p < P; ++p) at[p] = at[p - 1] + in[p - 1];
    std::vector<double> found(own), tau(rows_), row;
    for (extent k = 0; k < own; ++k) {
      row.clear();
      for (extent p = 0; p < P; ++p)
        for (extent c = 0; c < their_counts[p * own + k]; ++c)
          row.push_back(z(tokens_.first() * outer_ + k, theirs[at[p]++]));
      found[k] =
          row.empty() ? std::numeric_limits<double>::quiet_NaN() : entmax_threshold(row, power);
    }
    ranks_.all_gather(std::span<const double>(found), std::span(tau), tokens_.times(outer_));
    write(to, [&](extent r, T x) {
      const double over = z(r, x) - tau[r];
      return over <= 0 ? 0 : power == 2 ? over * over : power_of(over, power);
    });
  }

  communicator& ranks_;
  const axis_cut& cut_;
  const call_tokens& tokens_;
  extent outer_, rows_;
  std::vector<const T*> parts_;
};

}  // namespace fmoe::detail
