// SPDX-License-Identifier: MIT
// Selects the k greatest of f(x G), exactly, but reads most of G in 16 bits. It computes scores in
// bf16 with a bound of their error; the columns that may be among the k best are scored again in
// float as gemm does. docs/performance.md proves the bound.
#pragma once

#include <cmath>
#include <vector>

#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/row_products.hpp>
#include <fmoe/backend/cpu/kernels/shared_columns.hpp>
#include <fmoe/backend/cpu/kernels/top_k.hpp>
#include <fmoe/base/memory.hpp>

namespace fmoe::cpu {

// Rounds to bf16. Subnormals become 0, because bf16 dot products take them for 0.
inline bf16 rounded_to_bf16(float x) {
  const bf16 r(x);
  return (r.bits & 0x7f80u) == 0 ? bf16() : r;
}

// Returns the squared norm of n numbers, in several sums so that it vectorises; f(i) returns a
// number as a double.
template <class F>
double squared_norm(extent n, F f) {
  double sums[8] = {};
  for (extent i = 0; i < n; ++i) sums[i % 8] += f(i) * f(i);
  return (sums[0] + sums[4]) + (sums[1] + sums[5]) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

// The data that screening makes once from a parameter G[k, n].
template <class Arch>
struct screened_weights {
  static constexpr double unit = 0x1p-24;
  // x up + least, as a float, is not less than x, also for a subnormal x.
  static constexpr double up = 1 + 0x1p-20, least = 0x1p-126;
  static constexpr float most_norm = 0x1p62f;  // beyond it an intermediate product might overflow

  extent depth, columns, row_stride;
  bool pairs;                               // uses bf16 dot products, so x is rounded, too
  memory rows;                              // n k; each row is padded with zeros to a whole vector
  memory panels;                            // in bf16
  std::vector<float> by_norm, by_rounding;  // by column: the error of a score is below by_norm |x|
                                            // + by_rounding |x - bf16(x)| + floor
  float floor;                              // bound of the error of flushed subnormals

  // fill(row, n) writes column n of G.
  screened_weights(extent k, extent n, function_ref<void(float*, extent)> fill)
      : screened_weights(k, n) {
    for (extent c = 0; c < n; ++c) fill(reinterpret_cast<float*>(rows.data()) + c * row_stride, c);
    narrow();
  }

  static extent bytes(extent k, extent n) {
    return n * round_up(k, extent{16}) * sizeof(float) + panel_bytes(k, n) +
           2 * round_up(n, lanes<float, Arch>) * sizeof(float);
  }

  const float* row(extent n) const {
    return reinterpret_cast<const float*>(rows.data()) + n * row_stride;
  }

 private:
  static bool has_pairs() { return is_avx512<Arch> && has_bf16_dots(); }
  static extent panel_bytes(extent k, extent n) {
    return packed_size<float, Arch>(has_pairs() ? 2 * divide_up(k, 2) : k, n) * sizeof(bf16) +
           panel_slack;
  }

  screened_weights(extent k, extent n)
      : depth(k),
        columns(n),
        row_stride(round_up(k, extent{16})),
        pairs(has_pairs()),
        rows(n * row_stride * sizeof(float)),
        panels(panel_bytes(k, n)),
        by_norm(round_up(n, lanes<float, Arch>)),
        by_rounding(by_norm.size()),
        floor(static_cast<float>(k + 16) * 0x1p-125f) {}

  void narrow() {
    for (extent c = 0; c < columns; ++c) bound_column(c);
    memory rounded(columns * row_stride * sizeof(bf16));
    bf16* const to = reinterpret_cast<bf16*>(rounded.data());
    for (extent i = 0; i < columns * row_stride; ++i) to[i] = rounded_to_bf16(row(0)[i]);
    const extent each = pairs ? 2 : 1;  // elements of bf16 that are packed as one
    std::vector<extent> k_offsets(divide_up(depth, each)), n_offsets(columns);
    for (extent i = 0; i < k_offsets.size(); ++i) k_offsets[i] = i;
    for (extent c = 0; c < columns; ++c) n_offsets[c] = c * row_stride / each;
    if (pairs)
      pack_panels<float, Arch>(k_offsets, n_offsets, reinterpret_cast<const bf16_pair*>(to),
                               reinterpret_cast<bf16_pair*>(panels.data()));
    else pack_panels<float, Arch>(k_offsets, n_offsets, to, reinterpret_cast<bf16*>(panels.data()));
  }

  void bound_column(extent c) {
    const float* const from = row(c);
    const auto whole = [&](extent i) { return static_cast<double>(from[i]); };
    const auto narrow = [&](extent i) {
      return static_cast<double>(static_cast<float>(rounded_to_bf16(from[i])));
    };
    const double norm = std::sqrt(squared_norm(depth, whole)),
                 narrow_norm = std::sqrt(squared_norm(depth, narrow));
    const double lost =
        std::sqrt(squared_norm(depth, [&](extent i) { return whole(i) - narrow(i); }));
    const double steps = static_cast<double>(depth + depth / 128 + 16);
    const double slope = lost + 2 * steps * unit * (norm + 1.01 * narrow_norm);
    // Columns that are not usual, and those with a NaN, are always scored in float.
    const bool usual = norm < static_cast<double>(most_norm);
    by_norm[c] =
        usual ? static_cast<float>(slope * up + least) : std::numeric_limits<float>::infinity();
    by_rounding[c] = usual ? static_cast<float>(narrow_norm * up + least)
                           : std::numeric_limits<float>::infinity();
  }
};

// The memory of one token: header | its row as bf16 pairs | candidates | scores of one chunk. A
// plan of few tokens has the scores of several chunks, so that threads that share a product
// synchronise less often.
struct screen_row {
  static constexpr extent chunk = 768, block = 64, header = 16;
  static constexpr extent room(extent keep) { return round_up(6 * keep + 4 * block, block); }
  static constexpr extent fixed_size(extent depth, extent keep) {
    return header + round_up(divide_up(depth, 2), extent{16}) + 3 * room(keep);
  }
  static constexpr extent size(extent depth, extent keep, extent tokens) {
    constexpr extent few = 16;
    return fixed_size(depth, keep) + (tokens <= few ? 8 : 1) * chunk;
  }
  // Returns how many columns have scores in a row of this many elements.
  static constexpr extent span(extent depth, extent keep, extent elements) {
    return (elements - fixed_size(depth, keep)) / chunk * chunk;
  }

  float& norm;   // the norm of x
  float& lost;   // the norm of x - bf16(x)
  float& bound;  // at least k lower bounds of candidates reach it; NaN if there is none yet
  std::uint32_t& count;
  std::uint32_t& failed;  // the whole row must be scored in float
  float *pairs, *lower, *upper;
  std::uint32_t* indices;
  float* scores;

  screen_row(float* p, extent depth, extent keep)
      : norm(p[0]),
        lost(p[1]),
        bound(p[2]),
        count(reinterpret_cast<std::uint32_t&>(p[3])),
        failed(reinterpret_cast<std::uint32_t&>(p[4])),
        pairs(p + header),
        lower(pairs + round_up(divide_up(depth, 2), extent{16})),
        upper(lower + room(keep)),
        indices(reinterpret_cast<std::uint32_t*>(upper + room(keep))),
        scores(p + fixed_size(depth, keep)) {}
};

using score_passes = function_ref<void(float*, extent, extent, extent)>;
using selected_passes = function_ref<void(float*, const std::uint32_t*, extent, extent)>;

// finish(scores, first, count, token) runs the passes over the scores of columns first .. first +
// count; finish_at(scores, indices, count, token) runs them over the scores of some columns. Both
// must be monotone: x <= y gives f(x) <= f(y).
template <class Arch>
class screening {
  static constexpr extent width = lanes<float, Arch>;

 public:
  screening(const screened_weights<Arch>& w, extent keep, weighting weights, extent block,
            score_passes finish, selected_passes finish_at)
      : w_(w),
        keep_(keep),
        weights_(weights),
        block_(block),
        finish_(finish),
        finish_at_(finish_at) {}

  // Writes the selections of `tokens` rows of x, each into a state of top-k.
  void run(const float* x, extent x_stride, extent tokens, float* scratch, extent scratch_stride,
           float* states, extent state_stride, const std::byte* next,
           extent threads) const noexcept {
    const auto row = [&](extent t) __attribute__((noinline)) {
      return screen_row(scratch + t * scratch_stride, w_.depth, keep_);
    };
    each_token(threads, tokens, [&](extent t) { start(row(t), x + t * x_stride); });
    const extent steps = w_.pairs ? divide_up(w_.depth, 2) : w_.depth;
    const gemm_kernels<float>* kernels = &gemm_kernels_of<float, bf16, Arch>;
    if constexpr (is_avx512<Arch>)
      if (w_.pairs) kernels = &gemm_kernels_of<float, bf16_pair, Arch>;
    const screen_row first = row(0);
    const extent span = screen_row::span(w_.depth, keep_, scratch_stride);
    for (extent n = 0; n < w_.columns; n += span) {
      const extent count = std::min(span, w_.columns - n), end = n + count;
      const auto panels = [&](extent column) {
        return w_.panels.data() + column * steps * kernels->row_bytes / (2 * width);
      };
      shared_columns<float, Arch>(threads, tokens, steps, count, 1,
                                  [&](extent, extent from, extent to) {
                                    gemm<float, Arch>({tokens,
                                                       to - from,
                                                       steps,
                                                       w_.pairs ? first.pairs : x,
                                                       w_.pairs ? scratch_stride : x_stride,
                                                       {panels(n + from), kernels},
                                                       steps,
                                                       first.scores + from,
                                                       scratch_stride,
                                                       false,
                                                       all,
                                                       end < w_.columns ? panels(end) : next},
                                                      [](auto...) {});
                                  });
      each_token(threads, tokens, [&](extent t) {
        for (extent at = 0; at < count; at += screen_row::chunk)
          collect(row(t), states + t * state_stride, at, n + at,
                  std::min(screen_row::chunk, count - at), t);
      });
    }
    each_token(threads, tokens, [&](extent t) {
      if (row(t).failed == 0) rescore(row(t), x + t * x_stride, states + t * state_stride, t);
    });
    extent failed[together], waiting = 0;
    for (extent t = 0; t < tokens; ++t) {
      if (row(t).failed != 0) failed[waiting++] = t;
      const bool is_rest = waiting > 0 && t + 1 == tokens;
      if (waiting == together || is_rest)
        score_all(failed, std::exchange(waiting, 0), x, x_stride, row, states, state_stride);
    }
  }

 private:
  static constexpr extent together = 8;  // rows of x that a row of the table is multiplied with

  // Calls f(t) for every token, with this many threads.
  static void each_token(extent threads, extent tokens, function_ref<void(extent)> f) noexcept {
    const extent parts = std::min(threads, tokens);
    parallel(parts, [&](extent part) noexcept {
      for (extent t = tokens * part / parts; t < tokens * (part + 1) / parts; ++t) f(t);
    });
  }

  void start(screen_row r, const float* x) const noexcept {
    const auto narrow = [&](extent i) { return i < w_.depth ? rounded_to_bf16(x[i]) : bf16(); };
    const auto whole = [&](extent i) { return static_cast<double>(x[i]); };
    double lost = 0;
    if (w_.pairs) {
      for (extent i = 0; i < w_.depth; i += 2)
        r.pairs[i / 2] = std::bit_cast<float>(bf16_pair{narrow(i), narrow(i + 1)});
      lost = squared_norm(w_.depth, [&](extent i) {
        return whole(i) - static_cast<double>(static_cast<float>(narrow(i)));
      });
    }
    r.norm = static_cast<float>(std::sqrt(squared_norm(w_.depth, whole)) * w_.up + w_.least);
    r.lost = static_cast<float>(std::sqrt(lost) * w_.up + w_.least);
    r.failed = !(r.norm < w_.most_norm);
    r.count = 0;
    r.bound = std::numeric_limits<float>::quiet_NaN();
  }

  // Collects candidates from the scores of columns n .. n + count, which start at element `from` of
  // the row's scores.
  void collect(screen_row r, float* state, extent from, extent n, extent count,
               extent token) const noexcept {
    if (r.failed != 0) return;
    alignas(64) float lower[screen_row::chunk], upper[screen_row::chunk];
    const vec<float, Arch> norm(r.norm), lost(r.lost), floor(w_.floor);
    for (extent i = 0; i < count; i += width) {
      const auto score = load<float, Arch>(r.scores + from + i);
      const auto error = fmadd(norm, load<float, Arch>(&w_.by_norm[n + i]),
                               fmadd(lost, load<float, Arch>(&w_.by_rounding[n + i]), floor));
      const auto low = score - error;
      store<float, Arch>(
          lower + i,
          select(isnan(low), vec<float, Arch>(-std::numeric_limits<float>::infinity()), low));
      store<float, Arch>(upper + i, score + error);
    }
    finish_(lower, n, count, token);
    finish_(upper, n, count, token);
    if (n == 0)
      raise(r.bound, first_bound<float, Arch>(top_k_state<float, Arch>(state, keep_), keep_, lower,
                                              count, zeros_count(weights_)));
    const extent room = screen_row::room(keep_);
    for (extent b = 0; b < count; b += 64) {
      std::uint64_t found =
          bits_above<float, Arch, false>(upper + b, r.bound) & low_bits<Arch>(count - b);
      if (found == 0) continue;
      if (r.count + 64 > room) {
        cut(r);
        if (r.count + 64 > room) {
          r.failed = 1;
          return;
        }
      }
      for (; found != 0; found &= found - 1) {
        const extent i = b + static_cast<extent>(std::countr_zero(found));
        r.lower[r.count] = lower[i];
        r.upper[r.count] = upper[i];
        r.indices[r.count++] = static_cast<std::uint32_t>(n + i);
      }
    }
  }

  // Keeps bounds finite: a score of a column of huge numbers may be NaN, which is greater, while
  // its upper bound is infinity.
  static void raise(float& bound, float to) noexcept {
    if (!(to <= bound)) bound = std::min(to, std::numeric_limits<float>::max());
  }

  // Removes the candidates that at least k others exceed for sure.
  void cut(screen_row r) const noexcept {
    if (r.count < keep_) return;
    const float bound = kth_greatest<float, Arch>(r.lower, r.count, keep_);
    extent kept = 0;
    for (extent i = 0; i < r.count; ++i) {
      r.lower[kept] = r.lower[i];
      r.upper[kept] = r.upper[i];
      r.indices[kept] = r.indices[i];
      kept += !(r.upper[i] < bound);
    }
    r.count = static_cast<std::uint32_t>(kept);
    raise(r.bound, bound);
  }

  void rescore(screen_row r, const float* x, float* state, extent token) const noexcept {
    cut(r);
    const top_k_state<float, Arch> s(state, keep_);
    s.count = 0;
    float values[width];
    const float* rows[width];
    const float* const xs[] = {x};
    float* const cs[] = {values};
    for (extent i = 0; i < r.count; i += width) {
      const extent n = std::min(width, r.count - i);
      for (extent j = 0; j < width; ++j) rows[j] = w_.row(r.indices[i + std::min(j, n - 1)]);
      row_products<float, Arch>(xs, rows, w_.depth, block_, cs);
      finish_at_(values, r.indices + i, n, token);
      if (s.count + n > s.room(keep_)) top_k_cut(s, keep_);
      std::copy_n(values, n, s.values + s.count);
      std::copy_n(r.indices + i, n, s.indices + s.count);
      s.count += static_cast<std::uint32_t>(n);
    }
    top_k_finish<float, Arch>(state, keep_, weights_, nullptr, 0);
  }

  // Computes all scores of the rows that could not be screened.
  void score_all(const extent* tokens, extent count, const float* x, extent x_stride,
                 function_ref<screen_row(extent)> row, float* states,
                 extent state_stride) const noexcept {
    const float* xs[together];
    float* cs[together];
    const float* rows[width];
    for (extent n = 0; n < w_.columns; n += screen_row::chunk) {
      const extent columns = std::min(screen_row::chunk, w_.columns - n);
      for (extent at = 0; at < columns; at += width) {
        for (extent j = 0; j < width; ++j) rows[j] = w_.row(std::min(n + at + j, w_.columns - 1));
        for (extent r = 0; r < together; ++r) {
          const extent t = tokens[std::min(r, count - 1)];
          xs[r] = x + t * x_stride;
          cs[r] = row(t).scores + at;
        }
        row_products<float, Arch>(xs, rows, w_.depth, block_, cs);
      }
      for (extent r = 0; r < count; ++r) {
        float* const scores = row(tokens[r]).scores;
        finish_(scores, n, columns, tokens[r]);
        top_k_scan<float, Arch>(states + tokens[r] * state_stride, keep_, scores, columns, n,
                                n == 0, zeros_count(weights_));
      }
    }
    for (extent r = 0; r < count; ++r)
      top_k_finish<float, Arch>(states + tokens[r] * state_stride, keep_, weights_, nullptr, 0);
  }

  const screened_weights<Arch>& w_;
  extent keep_;
  weighting weights_;
  extent block_;
  score_passes finish_;
  selected_passes finish_at_;
};

}  // namespace fmoe::cpu
