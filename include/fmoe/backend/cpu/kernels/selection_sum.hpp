// SPDX-License-Identifier: MIT
// Sums what the tokens of a call selected: c[n, o] is the sum of selection[t, n] b[t, o] over all
// tokens that selected n. Blocks of tokens at fixed places are summed in plain order and added in
// order, as in token_sum.hpp, so the bits are those of the sum of dense rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <fmoe/arrays/table_rows.hpp>
#include <fmoe/backend/cpu/kernels/gather.hpp>
#include <fmoe/backend/cpu/kernels/pointwise.hpp>
#include <fmoe/backend/cpu/kernels/token_sum.hpp>
#include <fmoe/backend/cpu/kernels/transpose.hpp>

namespace fmoe::cpu {

// The entries of a block of tokens, sorted by their index and then by their token.
template <class T>
struct sorted_entries {
  std::uint32_t* ends;    // of each index from the first on, and a 0 before them
  std::uint32_t* tokens;  // counted from the block's first
  T* values;
};

// Sorts the entries with an index within [from, to) by counting, which is stable. `kept` gives each
// of the rows of selections of each of `count` tokens; from one of a token's rows to the next the
// indices grow by `own`; place_of(index) is what they are sorted by.
template <class T>
void sort_entries(const sorted_entries<T>& sorted, extent from, extent to, extent count,
                  extent rows, extent own, const auto& kept, const auto& place_of) noexcept {
  const auto each = [&](const auto& f) {
    for (extent t = 0; t < count; ++t)
      for (extent r = 0; r < rows; ++r) {
        const selected<T> row = kept(t, r);
        for (extent i = 0; i < row.count; ++i) {
          const extent index = place_of(r * own + row.indices[i]);
          if (index >= from && index < to)
            f(index - from, static_cast<std::uint32_t>(t), row.values[i]);
        }
      }
  };
  std::fill_n(sorted.ends, to - from + 1, 0u);
  each([&](extent n, std::uint32_t, T) { ++sorted.ends[n + 1]; });
  std::partial_sum(sorted.ends, sorted.ends + (to - from) + 1, sorted.ends);
  each([&](extent n, std::uint32_t t, T value) {
    const std::uint32_t at = sorted.ends[n]++;
    sorted.tokens[at] = t;
    sorted.values[at] = value;
  });
}

// Returns how many parts pay off for this number of threads. Each makes some rows of the result.
inline extent selection_sum_parts(const selection_sum_step& s, extent tokens,
                                  extent threads) noexcept {
  return parts_of_work(tokens * s.rows * s.keep * s.N, s.experts, threads);
}

// Stores n numbers, each plus 0, as adding to 0 leaves no -0. Whole lines of the cache are stored
// past it, since a line that is stored there is read from memory first.
template <class T, class Arch>
void store_totals(const T* totals, extent n, T* c) noexcept {
  constexpr extent width = lanes<T, Arch>;
  const bool lines =
      width * sizeof(T) == 64 && n % width == 0 && reinterpret_cast<std::uintptr_t>(c) % 64 == 0;
  for (extent i = 0; i < n; i += width) {
    const extent part = std::min(width, n - i);
    const vec<T, Arch> v = load_part<T, Arch>(totals + i, part) + vec<T, Arch>(T(0));
    if (lines) store_line<T, Arch>(c + i, v);
    else store_part<T, Arch>(c + i, part, v);
  }
}

// Makes part number `part` of `parts` of the result, or adds to it. `kept` gives the selection of
// each token. A null b counts as 1. If the result is sparse, `there` are its rows. The entries of
// several blocks are sorted together, so that each row of the result is read and written once.
template <class T, class Arch>
void selection_sum(const selection_sum_step& s, const auto& kept, token_rows<T> b, T* c, T* scratch,
                   extent tokens, extent part, extent parts, bool adds,
                   const table_rows* there = nullptr) noexcept {
  const extent rows_of_c = s.is_sparse ? there->count : s.experts;
  const extent from = rows_of_c * part / parts, to = rows_of_c * (part + 1) / parts;
  T *const row = scratch, *const totals = row + s.N,
           *const values = row + s.rows_of_scratch() * s.N;
  auto* const ends = reinterpret_cast<std::uint32_t*>(values + s.sorted_entries());
  const sorted_entries<T> sorted{ends, ends + s.experts + 1, values};
  const bool by_rows = s.column_stride == 1;
  // Without tokens the result is 0.
  for (extent first = 0; first == 0 || first < tokens; first += s.sorted_tokens()) {
    const bool starts = first == 0 && !adds;
    sort_entries(
        sorted, from, to, std::min(s.sorted_tokens(), tokens - first), s.rows, s.own(),
        [&](extent t, extent r) { return kept(first + t, r); },
        [&](extent index) { return s.is_sparse ? there->place_of(index) : index; });
    const auto begin_of = [&](extent n) { return n == from ? 0 : sorted.ends[n - from - 1]; };
    const auto is_empty = [&](extent n) { return begin_of(n) == sorted.ends[n - from]; };
    // Adds the blocks of expert n, or makes their total.
    const auto sum = [&](extent n, T* total, bool makes) {
      const extent end = sorted.ends[n - from], all = sorted.ends[to - from - 1];
      for (extent at = begin_of(n), next = at; at < end; at = next) {
        const extent last = round_up(sorted.tokens[at] + 1, s.block);
        while (next < end && sorted.tokens[next] < last) ++next;
        const selected<T> entries{values + at, sorted.tokens + at, next - at};
        if (b.data == nullptr) {
          *total += std::accumulate(entries.values, entries.values + entries.count, T(0));
          continue;
        }
        const bool is_first = makes && at == begin_of(n);
        gather<T, Arch>(b.data + first * b.stride, b.stride, s.N, entries,
                        {values + next, sorted.tokens + next, all - next}, is_first ? total : row,
                        false);
        if (!is_first) join<T, Arch>(pass_kind::add, total, 0, 1, s.N, row, 0);
      }
    };
    if (by_rows && starts) {  // a row is made in L1, and nothing waits for what c holds there
      for (extent n = from; n < to; ++n) {
        if (is_empty(n) || b.data == nullptr) std::fill_n(totals, s.N, T(0));
        sum(n, totals, true);
        store_totals<T, Arch>(totals, s.N, c + n * s.expert_stride);
      }
      end_lines<Arch>();
      continue;
    }
    if (by_rows) {
      const auto skip = [&](extent n) {  // rows that stay as they are
        while (n < to && is_empty(n)) ++n;
        return n;
      };
      for (extent n = skip(from), next; n < to; n = next) {
        next = skip(n + 1);
        if (next < to)  // which may lie in memory, and where it lies follows no pattern
          for (extent i = 0; i < s.N; i += 64 / sizeof(T))
            FMOE_PREFETCH_TO_WRITE(c + next * s.expert_stride + i);
        sum(n, c + n * s.expert_stride, false);
      }
      continue;
    }
    for (extent n = from, end; n < to; n = end) {
      end = std::min(to, round_up(n + 1, s.columns_together));
      if (!starts && begin_of(n) == sorted.ends[end - from - 1]) continue;
      if (!starts) transpose<T, Arch>(c + n, s.column_stride, s.N, end - n, totals, s.N);
      else std::fill_n(totals, (end - n) * s.N, T(0));
      for (extent e = n; e < end; ++e) sum(e, totals + (e - n) * s.N, false);
      transpose<T, Arch>(totals, s.N, end - n, s.N, c + n, s.column_stride);
    }
  }
}

}  // namespace fmoe::cpu
