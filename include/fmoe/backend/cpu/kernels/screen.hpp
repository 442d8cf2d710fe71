// SPDX-License-Identifier: MIT
// Selects the k greatest of f(x G), or all but 0, exactly, but reads most of G in 16 bits, or in 8.
// It computes scores from integers with a bound of their error; the columns that may be among the k
// best, or may not be 0, are scored again in float as gemm does. docs/screening.md proves the
// bound.
#pragma once

#include <algorithm>
#include <span>

#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/row_products.hpp>
#include <fmoe/backend/cpu/kernels/screened_weights.hpp>
#include <fmoe/backend/cpu/kernels/shared_columns.hpp>
#include <fmoe/backend/cpu/kernels/top_k.hpp>

namespace fmoe::cpu {

// The memory of one token: header | its row as integers of 16 bits | candidates | scores of one
// chunk. A plan of few tokens has the scores of several chunks, so that threads that share a
// product synchronise less often.
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

  float &norm, &lost, &scale;  // of x, narrowed
  float& bound;  // at least k lower bounds of candidates reach it; NaN if there is none yet
  std::uint32_t& count;
  std::uint32_t& failed;  // the whole row must be scored in float
  float *integers, *lower, *upper;
  std::uint32_t* indices;
  float* scores;

  screen_row(float* p, extent depth, extent keep)
      : norm(p[0]),
        lost(p[1]),
        scale(p[2]),
        bound(p[3]),
        count(reinterpret_cast<std::uint32_t&>(p[4])),
        failed(reinterpret_cast<std::uint32_t&>(p[5])),
        integers(p + header),
        lower(integers + round_up(divide_up(depth, 2), extent{16})),
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
  // States have room for `room` entries, of which `keep` are kept, and scratch for `entries`.
  screening(const screened_weights<Arch>& w, extent room, extent entries, extent keep,
            const selection_rule& rule, extent block, score_passes finish,
            selected_passes finish_at)
      : w_(w),
        room_(room),
        entries_(entries),
        keep_(keep),
        rule_(rule),
        block_(block),
        finish_(finish),
        finish_at_(finish_at) {}

  // Writes the selections of `tokens` rows of x, each into a state of top-k. With `bounds` they may
  // have fewer entries than are kept.
  void run(const float* x, extent x_stride, extent tokens, float* scratch, extent scratch_stride,
           float* states, extent state_stride, const std::byte* next,
           const product_threads& sharing, score_bounds* bounds = nullptr) const noexcept {
    crew& threads = sharing.threads;
    const auto row = [&](extent t) FMOE_NOINLINE_LAMBDA {
      return screen_row(scratch + t * scratch_stride, w_.depth, entries_);
    };
    each_token(threads, tokens, [&](extent t) { start(row(t), x + t * x_stride); });
    const extent steps = divide_up(w_.depth, integers_of_step<Arch>());
    const gemm_kernels<float>& kernels = dot_kernels<Arch>();
    const screen_row first = row(0);
    const extent span = screen_row::span(w_.depth, entries_, scratch_stride);
    for (extent n = 0; n < w_.columns; n += span) {
      const extent count = std::min(span, w_.columns - n), end = n + count;
      const auto panels = [&](extent column) {
        return w_.panels.data() + column * steps * kernels.row_bytes / (2 * width);
      };
      shared_columns<float, Arch>(sharing, tokens, steps, count, 1,
                                  [&](extent, extent from, extent to) {
                                    gemm<float, Arch>({tokens,
                                                       to - from,
                                                       steps,
                                                       first.integers,
                                                       scratch_stride,
                                                       {panels(n + from), &kernels},
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
                  std::min(screen_row::chunk, count - at), t, row(std::min(t + 1, tokens - 1)));
      });
    }
    if (bounds != nullptr && !takes_all() && !std::exchange(bounds->is_told, true)) {
      each_token(threads, tokens, [&](extent t) {
        list_lower(row(t), bounds->lower.subspan(t * bounds->each, bounds->each));
      });
      bounds->tell();
      each_token(threads, tokens, [&](extent t) { drop(row(t), bounds->least[t]); });
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

  top_k_state<float, Arch> state_of(float* state) const noexcept { return {state, room_}; }
  // True if all that is not 0 is kept; the passes make numbers of 0 or more then.
  bool takes_all() const noexcept { return rule_.what == selection_rule::kind::nonzero; }

  // Calls f(t) for every token, with these threads.
  static void each_token(crew& threads, extent tokens, function_ref<void(extent)> f) noexcept {
    const extent parts = std::min(threads.size(), tokens);
    threads.run(parts, [&](extent part) noexcept {
      for (extent t = tokens * part / parts; t < tokens * (part + 1) / parts; ++t) f(t);
    });
  }

  void start(screen_row r, const float* x) const noexcept {
    const narrowing n = narrow<Arch>(
        x, w_.depth, r.integers,
        has_narrow_columns<Arch>() ? integer_form::int16_in_halves : integer_form::int16);
    r.norm = n.norm;
    r.lost = n.lost;
    r.scale = n.scale;
    r.failed = !n.is_usual();
    r.count = 0;
    r.bound = takes_all() ? 0 : std::numeric_limits<float>::quiet_NaN();
  }

  // Collects candidates from the scores of columns n .. n + count, which start at element `from` of
  // the row's scores. Scores of the next row come into L1 meanwhile.
  void collect(screen_row r, float* state, extent from, extent n, extent count, extent token,
               screen_row next) const noexcept {
    if (r.failed != 0) return;
    alignas(64) float lower[screen_row::chunk], upper[screen_row::chunk];
    const vec<float, Arch> norm(r.norm), lost(r.lost), scale(r.scale), floor(w_.floor);
    for (extent i = 0; i < count; i += width) {
      FMOE_PREFETCH(next.scores + from + i);
      const auto score =
          load_integers<Arch>(r.scores + from + i) * scale * load<float, Arch>(&w_.scales[n + i]);
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
    if (n == 0 && !takes_all())
      raise(r.bound,
            first_bound<float, Arch>(state_of(state), keep_, lower, count, zeros_count(rule_)));
    const extent room = screen_row::room(entries_);
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
    if (takes_all() || r.count < keep_) return;
    const float bound = kth_greatest<float, Arch>(r.lower, r.count, keep_);
    drop(r, bound);
    raise(r.bound, bound);
  }

  // Removes the candidates that are below a bound for sure.
  static void drop(screen_row r, float bound) noexcept {
    extent kept = 0;
    for (extent i = 0; i < r.count; ++i) {
      r.lower[kept] = r.lower[i];
      r.upper[kept] = r.upper[i];
      r.indices[kept] = r.indices[i];
      kept += !(r.upper[i] < bound);
    }
    r.count = static_cast<std::uint32_t>(kept);
  }

  // Lists the greatest bounds from below: as many as are kept, if there is room.
  void list_lower(screen_row r, std::span<float> to) const noexcept {
    extent listed = 0;
    if (r.failed == 0) {
      cut(r);
      for (extent i = 0; i < r.count && listed < to.size(); ++i)
        if (!(r.lower[i] < r.bound)) to[listed++] = r.lower[i];
    }
    std::ranges::fill(to.subspan(listed), -std::numeric_limits<float>::infinity());
  }

  void rescore(screen_row r, const float* x, float* state, extent token) const noexcept {
    cut(r);
    const top_k_state<float, Arch> s = state_of(state);
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
      if (!takes_all() && s.count + n > s.room(room_)) top_k_cut(s, keep_);
      std::copy_n(values, n, s.values + s.count);
      std::copy_n(r.indices + i, n, s.indices + s.count);
      s.count += static_cast<std::uint32_t>(n);
    }
    if (takes_all()) drop_zeros(s);
    else top_k_finish<float, Arch>(s, keep_, rule_.weights, nullptr, 0, rule_.keeps_zeros);
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
        float *const scores = row(tokens[r]).scores, *state = states + tokens[r] * state_stride;
        finish_(scores, n, columns, tokens[r]);
        if (takes_all()) nonzero_scan<float, Arch>(state, room_, scores, columns, n, n == 0);
        else
          top_k_scan<float, Arch>(state_of(state), keep_, scores, columns, n, n == 0,
                                  zeros_count(rule_));
      }
    }
    for (extent r = 0; r < count && !takes_all(); ++r)
      top_k_finish<float, Arch>(state_of(states + tokens[r] * state_stride), keep_, rule_.weights,
                                nullptr, 0, rule_.keeps_zeros);
  }

  const screened_weights<Arch>& w_;
  extent room_, entries_, keep_;
  selection_rule rule_;
  extent block_;
  score_passes finish_;
  selected_passes finish_at_;
};

}  // namespace fmoe::cpu
