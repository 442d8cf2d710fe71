// SPDX-License-Identifier: MIT
// Sums what the tokens of a call selected: c[n, o] is the sum of selection[t, n] b[t, o] over all
// tokens that selected n. Blocks of tokens at fixed places are summed in plain order and added in
// order, as in token_sum.hpp, so the bits are those of the sum of dense rows.
#pragma once

#include <array>
#include <numeric>

#include <fmoe/arrays/table_rows.hpp>
#include <fmoe/backend/cpu/kernels/gather.hpp>
#include <fmoe/backend/cpu/kernels/pointwise.hpp>
#include <fmoe/backend/cpu/kernels/token_sum.hpp>

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

// Makes part number `part` of `parts` of the result, or adds to it. `kept` gives the selection of
// each token. A null b counts as 1. If the result is sparse, `there` are its rows.
template <class T, class Arch>
void selection_sum(const selection_sum_step& s, const auto& kept, token_rows<T> b, T* c, T* scratch,
                   extent tokens, extent part, extent parts, bool adds,
                   const table_rows* there = nullptr) noexcept {
  const extent rows_of_c = s.is_sparse ? there->count : s.experts;
  const extent from = rows_of_c * part / parts, to = rows_of_c * (part + 1) / parts;
  T* const rows = scratch;
  T* const values = rows + selection_sum_rows * s.N;
  auto* const ends = reinterpret_cast<std::uint32_t*>(values + s.block * s.rows * s.keep);
  const sorted_entries<T> sorted{ends, ends + s.experts + 1, values};
  const bool by_rows = s.column_stride == 1;
  if (by_rows && !adds) std::fill_n(c + from * s.N, (to - from) * s.N, T(0));
  for (extent i = 0; i < s.N && !by_rows && !adds; ++i)
    std::fill_n(c + i * s.column_stride + from, to - from, T(0));
  for (extent first = 0; first < tokens; first += s.block) {
    sort_entries(
        sorted, from, to, std::min(s.block, tokens - first), s.rows, s.own(),
        [&](extent t, extent r) { return kept(first + t, r); },
        [&](extent index) { return s.is_sparse ? there->place_of(index) : index; });
    std::array<extent, selection_sum_rows> made;  // the experts whose rows wait
    extent waiting = 0;
    const auto add_columns = [&] {
      for (extent i = 0; i < s.N; ++i)
        for (extent r = 0; r < waiting; ++r) c[i * s.column_stride + made[r]] += rows[r * s.N + i];
      waiting = 0;
    };
    const auto entries_of = [&](extent n) {
      const extent begin = n == from ? 0 : sorted.ends[n - from - 1], end = sorted.ends[n - from];
      return selected<T>{values + begin, sorted.tokens + begin, end - begin};
    };
    const auto skip_empty = [&](extent n) {
      while (n < to && entries_of(n).count == 0) ++n;
      return n;
    };
    for (extent n = skip_empty(from), next = n; n < to; n = next) {
      const selected<T> entries = entries_of(n);
      next = skip_empty(n + 1);
      if (b.data == nullptr) {
        c[n * s.expert_stride] +=
            std::accumulate(entries.values, entries.values + entries.count, T(0));
        continue;
      }
      if (by_rows && next < to)  // which may lie in memory, and where it lies follows no pattern
        for (extent i = 0; i < s.N; i += 64 / sizeof(T)) FMOE_PREFETCH_TO_WRITE(c + next * s.N + i);
      T* const row = rows + waiting * s.N;
      gather<T, Arch>(b.data + first * b.stride, b.stride, s.N, entries,
                      next < to ? entries_of(next) : selected<T>{}, row, false);
      if (by_rows) {
        join<T, Arch>(pass_kind::add, c + n * s.N, 0, 1, s.N, row, 0);
        continue;
      }
      made[waiting++] = n;
      if (waiting == selection_sum_rows) add_columns();
    }
    add_columns();
  }
}

}  // namespace fmoe::cpu
