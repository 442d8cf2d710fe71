// SPDX-License-Identifier: MIT
// Functions of rows and numbers of rows. A warp makes a short row, a block of threads a long one:
// each of its threads takes every 32nd or every 256th number, and their results are joined in a
// fixed order. A row that shared memory has room for is read once.
#pragma once

#include <fmoe/backend/cuda/kernels/passes.hpp>
#include <fmoe/backend/cuda/kernels/rows.hpp>

namespace fmoe::cuda {

// Returns exp(x - top).
template <class T>
FMOE_DEVICE T exponential_of(T x, T top) {
  return number_functions<T>::exponential(number<T>(x) - number<T>(top)).value;
}

// The greater one, or NaN if either is NaN.
template <class T>
FMOE_DEVICE T larger(T a, T b) {
  return b <= a || a != a ? a : b;
}

// A sum with its rounding errors (Kahan).
template <class T>
struct compensated_sum {
  T total = 0, lost = 0;

  FMOE_DEVICE void add(T x) {
    const T term = sum_of(x, -lost), next = sum_of(total, term);
    lost = sum_of(sum_of(next, -total), -term);
    total = next;
  }
};

// Returns the greatest of n numbers, or NaN if one is NaN, for one thread.
template <class T>
FMOE_DEVICE T greatest_of(const T* x, extent n) {
  T most = -std::numeric_limits<T>::infinity();
  for (extent i = 0; i < n; ++i) most = larger(most, x[i]);
  return most;
}

// Returns the sum of exp(x - top), for one thread.
template <class T>
FMOE_DEVICE T sum_of_exponentials(const T* x, extent n, T top) {
  compensated_sum<T> sum;
  for (extent i = 0; i < n; ++i) sum.add(exponential_of(x[i], top));
  return sum.total;
}

// Rows of more numbers are a whole block's.
inline constexpr extent most_of_warp = 1024;

// Rows lie one behind the other in the memory of a token; this is one of them.
struct row_place {
  extent token, row;
  bool exists;
};

// How kernels with a team for each row cut rows into blocks.
template <unsigned Team>
struct teams {
  static constexpr unsigned lanes = 32, threads = Team == lanes ? 128 : Team;

  // Numbers of a row that shared memory has room for.
  template <class T>
  static constexpr extent room = Team < threads ? most_of_warp : 32768 / sizeof(T);
  template <class T>
  static constexpr extent shared_bytes =
      threads / Team * room<T> * sizeof(T) + threads / lanes * sizeof(double) + 32;

  static constexpr extent blocks(extent rows) { return divide_up(rows, threads / Team); }

  // The row of a thread's team, which a launch may have too many of.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE static row_place row_of(const Block& b, extent tokens, extent rows) {
    const extent i = b.block() * (threads / Team) + b.thread() / Team;
    return {i / rows, i % rows, i < tokens * rows};
  }
};
using warps = teams<32>;

// One row of numbers, of which each of Team threads takes its part: a warp, or a whole block. All
// of them call all functions.
template <class T, class Block, unsigned Team>
class team_row {
 public:
  static constexpr unsigned lanes = 32, threads = teams<Team>::threads;
  static constexpr extent room = teams<Team>::template room<T>;

  FMOE_CALLS_BLOCK
  FMOE_DEVICE team_row(Block& block, const T* x, T* y, extent n)
      : block_(block),
        held_(block.template array<T>(threads / Team * room)),
        parts_(block.template array<double>(threads / lanes)),
        x_(x),
        y_(y),
        n_(n),
        first_(block.thread() / Team * room),
        is_held_(n <= room),
        lane_(block.thread() % Team) {}

  // Reads the row, for functions that need it more than once.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE void hold() const {
    if (!is_held_) return;
    const auto rounds = static_cast<index>((n_ - lane_ + Team - 1) / Team);  // all of its length
    FMOE_UNROLL_BY(8)
    for (index r = 0; r < rounds; ++r) held_[first_ + lane_ + r * Team] = x_[lane_ + r * Team];
  }

  FMOE_DEVICE void softmax(T bound) const {
    const T top = greatest(), least = bound > top ? top : bound;
    compensated_sum<T> mine;
    each([&](extent i) {
      const T x = at(i), e = x < least ? T(0) : exponential_of(x, top);
      mine.add(e);
      keep(i, e);
    });
    const T scale = quotient_of(T(1), joined_sum(mine.total));
    each([&](extent i) { y_[i] = product_of(kept(i), scale); });
  }

  // In double: tau makes the sum of the terms 1.
  FMOE_DEVICE void entmax(double alpha) const {
    const T top = greatest();
    if (!(top - top == 0)) {  // NaN or infinite
      each([&](extent i) { y_[i] = std::numeric_limits<T>::quiet_NaN(); });
      return;
    }
    const double scale = alpha - 1, power = 1 / scale;
    const auto base = [&](extent i, double tau) {
      return scale * (static_cast<double>(at(i)) - static_cast<double>(top)) - tau;
    };
    const auto term = [&](double d) {
      if (d <= 0) return 0.;
      return alpha == 1.5 ? d * d : alpha == 2 ? d : pow(d, power);
    };
    double tau = -1;
    const auto total = [&](double t) {
      return sum_in_double([&](extent i) { return term(base(i, t)); });
    };
    constexpr int most_steps = 80;
    if (alpha <= 2) {  // the sum is convex: Newton's steps come from below and pass no root
      for (int step = 0; step < most_steps; ++step) {
        double sum = 0, slope = 0;
        each([&](extent i) {
          const double d = base(i, tau);
          if (d <= 0) return;
          sum += term(d);
          slope += alpha == 1.5 ? d : alpha == 2 ? 1 : pow(d, power - 1);
        });
        const double next = tau + (joined_sum(sum) - 1) / (power * joined_sum(slope));
        if (!(next > tau)) break;
        tau = next;
      }
    } else {
      double high = 0;
      for (int step = 0; step < most_steps; ++step) {
        const double middle = (tau + high) / 2;
        (total(middle) >= 1 ? tau : high) = middle;
      }
    }
    const double whole = total(tau);
    each([&](extent i) { y_[i] = static_cast<T>(term(base(i, tau)) / whole); });
  }

  FMOE_DEVICE void layer_norm(double epsilon) const {
    const double middle = mean();
    const double squares = sum_in_double([&](extent i) {
      const double d = static_cast<double>(at(i)) - middle;
      return d * d;
    });
    scale(middle, 1 / root_of(squares / static_cast<double>(n_) + epsilon));
  }

  FMOE_DEVICE void rms_norm(double epsilon) const {
    scale(0, 1 / root_of(squares() / static_cast<double>(n_) + epsilon));
  }

  FMOE_DEVICE void clamped_rms_norm(double epsilon) const {
    const double length = root_of(squares());
    scale(0, root_of(static_cast<double>(n_)) / (length < epsilon ? epsilon : length));
  }

  // A thread takes a group: it compares the group with all others, and they wait for each other
  // before they write, since y may lie where x does.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE void best_groups(grouping groups, extent active) const {
    const extent each = n_ / groups.count;
    constexpr extent turns = divide_up(most_groups, extent{lanes});
    bool is_best[turns] = {};
    for (extent turn = 0, g = lane_; g < groups.count; ++turn, g += Team) {
      const T mine = score_of_group(groups.score, x_ + g * each, each);
      extent before = 0;
      for (extent h = 0; h < groups.count; ++h) {
        const T other = score_of_group(groups.score, x_ + h * each, each);
        before += is_ahead(other, h, mine, g);
      }
      is_best[turn] = before < active;
    }
    joined_sum(T(0));
    for (extent turn = 0, g = lane_; g < groups.count; ++turn, g += Team)
      for (extent i = g * each; i < (g + 1) * each; ++i)
        y_[i] = is_best[turn] ? x_[i] : -std::numeric_limits<T>::infinity();
  }

  // A thread takes a group, which no other thread reads.
  FMOE_DEVICE void group_max(extent groups) const {
    const extent each = n_ / groups;
    for (extent at = lane_ * each; at < n_; at += Team * each) {
      extent best = at;
      for (extent i = at + 1; i < at + each; ++i)
        if (is_ahead(x_[i], i, x_[best], best)) best = i;
      const T most = x_[best];
      for (extent i = at; i < at + each; ++i) y_[i] = -std::numeric_limits<T>::infinity();
      y_[best] = most;
    }
  }

  // The threads find the greatest entry together, and what stands beside it; then the next one.
  FMOE_DEVICE void sparse_mixer(double jitter) const {
    const T jitters = static_cast<T>(2 * jitter);
    double chosen[2] = {-1, -1};  // places
    T weights[2];
    for (int k = 0; k < 2; ++k) {
      const auto each_left = [&](const auto& f) {
        each([&](extent i) {
          if (static_cast<double>(i) != chosen[0]) f(i, at(i));
        });
      };
      T most = -std::numeric_limits<T>::infinity();
      each_left([&](extent, T x) { most = larger(most, x); });
      const T top = joined_greatest(most);
      double place = static_cast<double>(n_);
      compensated_sum<T> mine;
      each_left([&](extent i, T x) {
        if (x == top && static_cast<double>(i) < place) place = static_cast<double>(i);
        const T size = x < 0 ? -x : x;
        const T ratio = quotient_of(sum_of(top, -x), size > top ? size : top);
        if (!(ratio > jitters)) mine.add(exponential_of(x, top));
      });
      weights[k] = quotient_of(T(1), joined_sum(mine.total));
      chosen[k] = joined(place, [](double a, double b) { return a < b ? a : b; });
    }
    const T sum = sum_of(weights[0], weights[1]);  // NaN if one is
    each([&](extent i) {
      const auto place = static_cast<double>(i);
      y_[i] = sum != sum           ? sum
              : place == chosen[0] ? weights[0]
              : place == chosen[1] ? weights[1]
                                   : T(0);
    });
  }

  // A norm or the mean.
  FMOE_DEVICE T norm(row_norm which) const {
    switch (which) {
      case row_norm::l1:
        return static_cast<T>(
            sum_in_double([&](extent i) { return fabs(static_cast<double>(at(i))); }));
      case row_norm::l2: return static_cast<T>(root_of(squares()));
      case row_norm::mean: return static_cast<T>(mean());
      case row_norm::max: break;
    }
    T most = 0;
    each([&](extent i) {
      const T x = at(i);
      most = larger(most, x < 0 ? -x : x);
    });
    return joined_greatest(most);
  }

 private:
  // The score of a group of n numbers; NaN if one is NaN.
  FMOE_DEVICE static T score_of_group(group_score score, const T* x, extent n) {
    T first = -std::numeric_limits<T>::infinity(), second = first;
    for (extent i = 0; i < n; ++i) {
      if (x[i] != x[i]) return x[i];
      if (x[i] > first) {
        second = first;
        first = x[i];
      } else if (x[i] > second) {
        second = x[i];
      }
    }
    return n == 1 || score == group_score::greatest ? first : sum_of(first, second);
  }
  // NaN first, and the lower place among equals.
  FMOE_DEVICE static bool is_ahead(T a, extent i, T b, extent j) {
    if (a != a || b != b) return a != a && (b == b || i < j);
    return a > b || (a == b && i < j);
  }

  template <class F>
  FMOE_DEVICE void each(const F& f) const {
    for (extent i = lane_; i < n_; i += Team) f(i);
  }

  FMOE_CALLS_BLOCK
  FMOE_DEVICE T at(extent i) const { return is_held_ ? T(held_[first_ + i]) : x_[i]; }
  // Keeps what becomes of a number, until kept() asks for it.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE void keep(extent i, T x) const {
    if (is_held_) held_[first_ + i] = x;
    else y_[i] = x;
  }
  FMOE_CALLS_BLOCK
  FMOE_DEVICE T kept(extent i) const { return is_held_ ? T(held_[first_ + i]) : y_[i]; }

  // All threads get the same bits, because a + b is b + a. Warps are joined in their order.
  FMOE_CALLS_BLOCK
  template <class S, class Join>
  FMOE_DEVICE S joined(S mine, const Join& join) const {
    for (unsigned half = lanes / 2; half > 0; half /= 2)
      mine = join(mine, block_.shuffle_xor(mine, half));
    if constexpr (Team > lanes) {
      if (lane_ % lanes == 0) parts_[lane_ / lanes] = static_cast<double>(mine);
      block_.sync();
      mine = static_cast<S>(parts_[0]);
      for (unsigned w = 1; w < Team / lanes; ++w) mine = join(mine, static_cast<S>(parts_[w]));
      block_.sync();
    }
    return mine;
  }
  template <class S>
  FMOE_DEVICE S joined_sum(S mine) const {
    return joined(mine, [](S a, S b) { return sum_of(a, b); });
  }
  FMOE_DEVICE T joined_greatest(T mine) const {
    return joined(mine, [](T a, T b) { return larger(a, b); });
  }

  FMOE_DEVICE T greatest() const {
    T most = -std::numeric_limits<T>::infinity();
    each([&](extent i) { most = larger(most, at(i)); });
    return joined_greatest(most);
  }

  template <class F>
  FMOE_DEVICE double sum_in_double(const F& f) const {
    double mine = 0;
    each([&](extent i) { mine = sum_of(mine, f(i)); });
    return joined_sum(mine);
  }
  FMOE_DEVICE double mean() const {
    return sum_in_double([&](extent i) { return static_cast<double>(at(i)); }) /
           static_cast<double>(n_);
  }
  FMOE_DEVICE double squares() const {
    return sum_in_double([&](extent i) {
      return product_of(static_cast<double>(at(i)), static_cast<double>(at(i)));
    });
  }

  FMOE_DEVICE void scale(double shift, double factor) const {
    each([&](extent i) { y_[i] = static_cast<T>((static_cast<double>(at(i)) - shift) * factor); });
  }

  Block& block_;
  decltype(std::declval<Block&>().template array<T>(0)) held_;
  decltype(std::declval<Block&>().template array<double>(0)) parts_;
  const T* x_;
  T* y_;
  extent n_, first_;
  bool is_held_;
  unsigned lane_;
};

template <class T, unsigned Team>
struct row_function_kernel {
  static constexpr unsigned threads = teams<Team>::threads;
  static constexpr extent shared_bytes = teams<Team>::template shared_bytes<T>;

  row_function f;
  double parameter;
  grouping groups;  // of best_groups
  rows_at<const T> a, bound;
  rows_at<T> c;
  extent tokens, rows, columns, bounds;  // rows and bounds of a token; bounds repeat

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const auto [token, r, exists] = teams<Team>::row_of(b, tokens, rows);
    if (!exists) return;  // a whole team
    const team_row<T, Block, Team> row(b, a.row(token) + r * columns, c.row(token) + r * columns,
                                       columns);
    row.hold();
    switch (f) {
      case row_function::softmax: return row.softmax(-std::numeric_limits<T>::infinity());
      case row_function::bounded_softmax: return row.softmax(bound.row(token)[r % bounds]);
      case row_function::entmax: return row.entmax(parameter);
      case row_function::layer_norm: return row.layer_norm(parameter);
      case row_function::rms_norm: return row.rms_norm(parameter);
      case row_function::clamped_rms_norm: return row.clamped_rms_norm(parameter);
      case row_function::best_groups:
        return row.best_groups(groups, static_cast<extent>(parameter));
      case row_function::group_max: return row.group_max(static_cast<extent>(parameter));
      case row_function::sparse_mixer: return row.sparse_mixer(parameter);
    }
  }
};

template <class T, unsigned Team>
struct row_norm_kernel {
  static constexpr unsigned threads = teams<Team>::threads;
  static constexpr extent shared_bytes = teams<Team>::template shared_bytes<T>;

  row_norm which;
  rows_at<const T> a;
  rows_at<T> c;
  extent tokens, rows, columns;

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const auto [token, r, exists] = teams<Team>::row_of(b, tokens, rows);
    if (!exists) return;  // a whole team
    const team_row<T, Block, Team> row(b, a.row(token) + r * columns, nullptr, columns);
    row.hold();
    const T norm = row.norm(which);
    if (b.thread() % Team == 0) c.row(token)[r] = norm;
  }
};

}  // namespace fmoe::cuda
