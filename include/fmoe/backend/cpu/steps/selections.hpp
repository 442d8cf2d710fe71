// SPDX-License-Identifier: MIT
// Runs the steps that select entries of rows, and those that read what is selected.
#pragma once

#include <fmoe/backend/cpu/kernels/expert_choice.hpp>
#include <fmoe/backend/cpu/kernels/kept.hpp>
#include <fmoe/backend/cpu/kernels/product_top_k.hpp>
#include <fmoe/backend/cpu/kernels/selected_rows.hpp>
#include <fmoe/backend/cpu/kernels/selection_sum.hpp>
#include <fmoe/backend/cpu/kernels/shared_columns.hpp>
#include <fmoe/backend/cpu/kernels/small_product.hpp>
#include <fmoe/backend/cpu/kernels/top_k.hpp>
#include <fmoe/backend/cpu/operands.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
inline product_threads sharing(const operands<T, Arch>& in, const frame<T>& f) noexcept {
  return {*f.threads, in.plan.read_seconds, in.plan.multiply_add_seconds};
}

template <class T, class Arch>
inline extent state_stride(extent keep) {
  return round_up(top_k_state_size<T, Arch>(keep), cache_line / sizeof(T));
}

// The state of one of the rows of a token's selection, and its kept entries.
template <class T, class Arch>
inline T* state(const rows_of<T>& selection, extent token, extent row, extent keep) noexcept {
  return selection.data + token * selection.stride + row * state_stride<T, Arch>(keep);
}
template <class T, class Arch>
inline selected<T> kept(const rows_of<T>& selection, extent token, extent row,
                        extent keep) noexcept {
  return top_k_result<T, Arch>(state<T, Arch>(selection, token, row, keep), keep);
}

// One of the rows of a token's selection, which keeps the places of another, without its values.
template <class T, class Arch>
inline top_k_state<T, Arch> same_places(const rows_of<T>& selection, extent token, extent row,
                                        extent keep, const selected<T>& from) noexcept {
  const top_k_state<T, Arch> made(state<T, Arch>(selection, token, row, keep), keep);
  made.count = static_cast<std::uint32_t>(from.count);
  std::copy_n(from.indices, from.count, made.indices);
  return made;
}

// The entries of the selection after a token's row, if they select from the same table.
template <class T, class Arch, class Step>
inline selected<T> next_kept(const rows_of<T>& selection, const Step& s, const frame<T>& f,
                             extent token, extent row) noexcept {
  const bool is_last = row + 1 == s.rows;
  if (s.table_row != 0 || (is_last && token + 1 == f.count)) return {};
  return is_last ? kept<T, Arch>(selection, token + 1, 0, s.keep)
                 : kept<T, Arch>(selection, token, row + 1, s.keep);
}

// The rows of a sparse result.
template <class T, class Arch>
inline table_rows* sparse_rows(const operands<T, Arch>& in, const view& c,
                               const frame<T>& f) noexcept {
  return f.bound->tables[in.plan.storages[c.storage].source];
}
template <class T, class Arch>
inline void list(const selection_sum_step& s, const operands<T, Arch>& in, const frame<T>& f,
                 extent tokens) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), c = in.rows(s.c, f);
  list_rows(*sparse_rows(in, s.c, f), s.experts, c.data, s.N, tokens, s.rows, s.own(),
            in.adds(s.c, f),
            [&](extent t, extent r) { return kept<T, Arch>(selection, t, r, s.keep); });
}
template <class T, class Arch>
inline void run(const selection_sum_step& s, const operands<T, Arch>& in,
                const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), c = in.rows(s.c, f),
                   b = s.b.exists() ? in.rows(s.b, f) : rows_of<T>{};
  const auto row = [&](extent t, extent r) { return kept<T, Arch>(selection, t, r, s.keep); };
  selection_sum<T, Arch>(s, row, {b.data, b.stride}, c.data, f.arena, f.tokens, f.part, f.parts,
                         in.adds(s.c, f), s.is_sparse ? sparse_rows(in, s.c, f) : nullptr);
}

template <class T, class Arch>
inline void run(const gather_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), c = in.rows(s.c, f);
  const weight_table<T> table = in.table(s.table, f);
  for (extent t = 0; t < f.count; ++t) {
    T* row = c.data + t * c.stride;
    if (s.rows == 0) std::fill_n(row, s.N, T(0));
    for (extent r = 0; r < s.rows; ++r)
      table.as->gather(table.numbers, r * s.table_row, s.N, kept<T, Arch>(selection, t, r, s.keep),
                       next_kept<T, Arch>(selection, s, f, t, r), row, r != 0);
    in.finish(s.epilogues, f, row, 0, t, 1, 0, s.N);
  }
}

template <class T, class Arch>
inline void run(const rescale_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), factors = in.rows(s.factors, f),
                   c = in.rows(s.c, f);
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r)
      rescale<T, Arch>({state<T, Arch>(c, t, r, s.keep), s.keep},
                       kept<T, Arch>(selection, t, r, s.keep), factors.data + r * s.table_row);
}

template <class T, class Arch>
inline void run(const sample_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), x = in.rows(s.x, f), c = in.rows(s.c, f);
  const weight_table<T> table = in.table(s.table, f);
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r) {
      const selected<T> from = kept<T, Arch>(selection, t, r, s.keep);
      const top_k_state<T, Arch> made = same_places<T, Arch>(c, t, r, s.keep, from);
      table.as->sample(x.data + t * x.stride, table.numbers, r * s.table_row, s.K, from,
                       next_kept<T, Arch>(selection, s, f, t, r), made.values);
      in.finish(s.epilogues, f, made.values, 0, t, 1, 0, from.count);
      if (!s.weighs) continue;
      join<T, Arch>(s.multiplies ? pass_kind::multiply : pass_kind::keep, made.values, 0, 1,
                    from.count, from.values, 0);
    }
}

template <class T, class Arch>
inline void run(const select_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> a = in.rows(s.a, f), selection = in.rows(s.selection, f),
                   ranked = s.ranked.exists() ? in.rows(s.ranked, f) : rows_of<T>{};
  const extent n = f.in_loop ? f.length : s.columns, keep = std::min(s.keep, f.bound->keep);
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r) {
      T* const row = state<T, Arch>(selection, t, r, s.keep);
      if (s.rule.what == selection_rule::kind::product_top_k) {
        T* const lists = state<T, Arch>(selection, t, s.rows, s.keep);
        const extent each = s.rule.each;
        product_top_k<T, Arch>({row, s.keep}, at_most(s.rule, keep),
                               a.data + t * a.stride + 2 * r * s.list, s.list, {lists, each},
                               {lists + state_stride<T, Arch>(each), each});
        continue;
      }
      if (s.rule.what == selection_rule::kind::entries) {
        const T* const values = a.data + t * a.stride + 2 * r * s.list;
        keep_entries<T, Arch>({row, s.keep}, values, values + s.list, s.keep);
        continue;
      }
      const T* const scores = a.data + t * a.stride + r * s.columns;
      if (s.rule.what == selection_rule::kind::top_p) {
        top_p<T, Arch>(row, s.rule.mass, s.rule.weights, scores, n, s.rule.keeps_zeros);
        continue;
      }
      if (s.rule.what == selection_rule::kind::nonzero) {
        nonzero_scan<T, Arch>(row, s.keep, scores, n, f.at, f.is_first);
        continue;
      }
      const top_k_state<T, Arch> best(row, s.keep);
      if (s.ranked.exists()) {
        top_k_by<T, Arch>(best, keep, ranked.data + t * ranked.stride + r * s.columns, scores, n);
        weigh<T, Arch>(best, s.rule.weights, scores, n, s.rule.keeps_zeros);
        continue;
      }
      top_k_scan<T, Arch>(best, keep, scores, n, f.at, f.is_first, zeros_count(s.rule));
      if (f.is_last)
        top_k_finish<T, Arch>(best, keep, s.rule.weights, scores, n, s.rule.keeps_zeros);
    }
}

template <class T, class Arch>
inline void run(const screen_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  if constexpr (std::is_same_v<T, float>) {
    const rows_of<T> a = in.rows(s.a, f), selection = in.rows(s.selection, f),
                     scratch = in.rows(s.scratch, f);
    const auto passes = [&](T* scores, extent first, extent count, extent t) {
      in.finish(s.epilogues, f, scores, 0, t, 1, first, count);
    };
    const auto passes_at = [&](T* scores, const std::uint32_t* columns, extent count, extent) {
      for (extent i = 0; i < count; ++i)
        in.finish(s.epilogues, f, scores + i, 0, 0, 1, columns[i], 1);
    };
    screening<Arch>(in.constants.screened(s.weight), s.keep, screened_entries(s.rule, s.keep, s.N),
                    std::min(s.keep, f.bound->keep), s.rule, in.plan.sum_block, passes, passes_at)
        .run(a.data, a.stride, f.count, scratch.data, scratch.stride, selection.data,
             selection.stride, f.next, sharing(in, f), f.bound->bounds);
  }
}

template <class T, class Arch>
inline void run(const expert_choice_step& s, const operands<T, Arch>& in,
                const frame<T>& f) noexcept {
  const rows_of<T> scores = in.rows(s.scores, f), ranked = in.rows(s.ranked, f),
                   selection = in.rows(s.selection, f);
  auto* const order =
      reinterpret_cast<std::uint32_t*>(f.bound->call + s.scratch * f.bound->call_rows);
  expert_choice<T, Arch>(s.rule, {scores.data, scores.stride}, {ranked.data, ranked.stride},
                         f.tokens, s.experts, order, selection.data, selection.stride);
}

template <class T, class Arch>
inline void run(const kept_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), c = in.rows(s.c, f);
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r) {
      T* const row = c.data + t * c.stride + r * s.keep;
      const selected<T> entries = kept<T, Arch>(selection, t, r, s.keep);
      if (s.what == kept_part::value) kept_values(entries, row, s.keep);
      else kept_indices(entries, row, s.keep);
    }
}

template <class T, class Arch>
inline void run(const take_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), a = in.rows(s.a, f), c = in.rows(s.c, f);
  const small_product<T, Arch> copy(loop_axes(s.out), loop_axes());
  for (extent t = 0; t < f.count; ++t) {
    T* const to = c.data + t * c.stride;
    std::fill_n(to, s.columns, T(0));
    for (extent r = 0; r < s.rows; ++r) {
      const selected<T> from = kept<T, Arch>(selection, t, r, s.keep);
      for (extent k = 0; k < from.count; ++k) {
        const extent index = from.indices[k];
        copy(a.data + t * a.stride + r * s.row.a + (s.spreads ? k : index) * s.entry.a, nullptr,
             to + r * s.row.c + (s.spreads ? index : k) * s.entry.c);
      }
    }
  }
}

template <class T, class Arch>
inline void run(const weigh_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), a = in.rows(s.a, f), c = in.rows(s.c, f);
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r) {
      const selected<T> from = kept<T, Arch>(selection, t, r, s.keep);
      const top_k_state<T, Arch> made = same_places<T, Arch>(c, t, r, s.keep, from);
      std::copy_n(a.data + t * a.stride + r * s.keep, from.count, made.values);
    }
}

template <class T, class Arch>
inline void run(const reweigh_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), c = in.rows(s.c, f),
                   scores = s.scores.exists() ? in.rows(s.scores, f) : rows_of<T>{};
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r) {
      const selected<T> from = kept<T, Arch>(selection, t, r, s.keep);
      const top_k_state<T, Arch> made = same_places<T, Arch>(c, t, r, s.keep, from);
      std::copy_n(from.values, from.count, made.values);
      weigh<T, Arch>(made, s.weights, scores.data + t * scores.stride + r * s.columns, s.columns,
                     s.keeps_zeros);
    }
}

template <class T, class Arch>
inline void run(const unpair_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), c = in.rows(s.c, f);
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r) {
      T* const lists = c.data + t * c.stride + r * 2 * s.list;
      std::fill_n(lists, 2 * s.list, T(0));
      const selected<T> from = kept<T, Arch>(selection, t, r, s.keep);
      for (extent k = 0; k < from.count; ++k) {
        lists[from.indices[k] / s.list] += from.values[k];
        lists[s.list + from.indices[k] % s.list] += from.values[k];
      }
    }
}

template <class T, class Arch>
inline void run(const expand_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), c = in.rows(s.c, f);
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r) {
      const selected<T> from = kept<T, Arch>(selection, t, r, s.keep);
      T* row = c.data + t * c.stride + r * s.columns;
      std::fill_n(row, s.columns, T(0));
      for (extent k = 0; k < from.count; ++k) row[from.indices[k]] = from.values[k];
    }
}

}  // namespace fmoe::cpu
