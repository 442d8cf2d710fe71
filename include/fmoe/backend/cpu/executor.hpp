// SPDX-License-Identifier: MIT
// Runs a plan on the CPU: for a tile of tokens, the steps from top to bottom. It knows steps and
// kernels, but no layer. The results of a tile do not depend on which tile it is, which thread runs
// it, or how many rows it has.
#pragma once

#include <cstring>

#include <fmoe/arrays/array_view.hpp>
#include <fmoe/backend/cpu/binding.hpp>
#include <fmoe/backend/cpu/constants.hpp>
#include <fmoe/backend/cpu/kernels/exclude.hpp>
#include <fmoe/backend/cpu/kernels/expert_choice.hpp>
#include <fmoe/backend/cpu/kernels/gather.hpp>
#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/group_rows.hpp>
#include <fmoe/backend/cpu/kernels/kept.hpp>
#include <fmoe/backend/cpu/kernels/pointwise.hpp>
#include <fmoe/backend/cpu/kernels/product_top_k.hpp>
#include <fmoe/backend/cpu/kernels/row_function.hpp>
#include <fmoe/backend/cpu/kernels/sample.hpp>
#include <fmoe/backend/cpu/kernels/shared_columns.hpp>
#include <fmoe/backend/cpu/kernels/small_product.hpp>
#include <fmoe/backend/cpu/kernels/top_k.hpp>
#include <fmoe/backend/cpu/parts.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
class executor {
 public:
  // Packs the weights and computes the plan's constants. The plan's storages name the leaves by
  // number.
  executor(plan p, std::span<const ir::leaf_node> leaves)
      : plan_(std::move(p)),
        constants_(plan_, leaves) {
    for (extent w = 0; w < plan_.weights.size(); ++w)
      if (!is_computed(plan_.weights[w].storage)) constants_.pack(plan_, w);
    const binding<T> none;
    frame f{0, 1, &none, nullptr};
    for (const step& s : plan_.prologue) visit(s, f);
    for (extent w = 0; w < plan_.weights.size(); ++w)
      if (is_computed(plan_.weights[w].storage)) constants_.pack(plan_, w);
    constants_.release_packed(plan_);
  }

  const plan& steps() const { return plan_; }

  // Runs one stage of one tile of `count` rows, at most the plan's tile. Its first row is row
  // `first` of the call and of the graph's own inputs. `arena` is aligned to a cache line.
  // `threads` may share products, by their columns.
  void run(const binding<T>& bound, extent first, extent count, T* arena, extent stage = 0,
           extent threads = 1) const noexcept {
    frame f{first, count, &bound, arena};
    f.threads = threads;
    for (extent i = plan_.stages[stage].first; i < plan_.stages[stage].end; ++i) {
      f.next = first_weights(plan_.steps, i + 1, 0);
      if (f.next == nullptr) f.next = first_weights(plan_.steps, 0, 0);
      visit(plan_.steps[i], f);
    }
  }

  // Returns the parts of a stage that runs once for each call: for each step as many as this number
  // of threads can use.
  extent parts(extent stage, extent tokens, extent threads) const noexcept {
    extent n = 0;
    for (extent i = plan_.stages[stage].first; i < plan_.stages[stage].end; ++i)
      n += parts_of(plan_.steps[i], tokens, threads);
    return n;
  }

  // Runs one of these parts, for a call of `tokens` tokens. Parts are independent of each other.
  void run_part(const binding<T>& bound, extent tokens, T* arena, extent stage, extent part,
                extent threads) const noexcept {
    extent i = plan_.stages[stage].first;
    extent count = parts_of(plan_.steps[i], tokens, threads);
    for (; part >= count; count = parts_of(plan_.steps[i], tokens, threads)) {
      part -= count;
      ++i;
    }
    frame f{0, 1, &bound, arena};
    f.tokens = tokens;
    f.part = part;
    f.parts = count;
    visit(plan_.steps[i], f);
  }

 private:
  using frame = cpu::frame<T>;

  bool is_computed(extent storage) const {
    return plan_.storages[storage].where == storage_row::kind::constant;
  }

  [[gnu::noinline]] rows_of<T> rows(const view& v, const frame& f) const noexcept {
    using enum storage_row::kind;
    const storage_row& s = plan_.storages[v.storage];
    rows_of<T> r{nullptr, s.stride};
    switch (s.where) {
      case arena: r.data = f.arena + s.offset; break;
      case call: r.data = f.bound->call + s.offset * f.bound->call_rows + f.first * s.stride; break;
      case once: r.data = f.bound->call + plan_.call * f.bound->call_rows + s.offset; break;
      case constant: r.data = constants_.computed() + s.offset; break;
      case leaf:
      case input: r.data = const_cast<T*>(constants_.leaf(v.storage)) + f.first * s.stride; break;
      case output: r = f.bound->results[s.source]; break;
      case argument: {
        const auto& a = f.bound->arguments[s.source];
        r = {const_cast<T*>(a.data), a.stride};
      }
    }
    // An array of no elements may have no address, and kernels count from one.
    static constexpr T none{};
    if (r.data == nullptr) r.data = const_cast<T*>(&none);
    r.data += v.offset + v.step * f.at + v.expert * f.expert;
    return r;
  }

  // Calls f with the table of a gather, of Ts or as it is stored.
  template <class F>
  void with_table(const view& v, const frame& at, const F& f) const noexcept {
    if (plan_.storages[v.storage].where == storage_row::kind::leaf)
      constants_.with_table(v.storage, f);
    else f(static_cast<const T*>(rows(v, at).data));
  }

  // Returns the step's panels of one of its weights, from a column and from k on.
  gemm_panels<T> part(const gemm_step& s, extent weight, extent column, extent k) const noexcept {
    const auto [data, kernels] = constants_.panels(plan_, s.weight, weight);
    return {data + column / panel_width<T, Arch> * kernels->bytes(s.K) + kernels->bytes(k),
            kernels};
  }

  // Runs the passes over a finished block of c that starts at element `position` of its rows.
  [[gnu::noinline]] void finish(const std::vector<epilogue>& passes, const frame& f, T* c,
                                extent ldc, extent row, extent count, extent position,
                                extent columns) const noexcept {
    for (const epilogue& e : passes) {
      if (e.what == pass_kind::map) {
        apply<T, Arch>(e.f, c, ldc, count, columns);
        continue;
      }
      const rows_of<T> other = rows(e.other, f);
      for (extent done = 0; done < columns;) {  // `other` repeats along the row
        const extent from = (position + done) % e.period,
                     n = std::min(columns - done, e.period - from);
        const T* o = other.data + row * other.stride + from;
        join<T, Arch>(e.what, c + done, ldc, count, n, o, other.stride);
        done += n;
      }
    }
  }

  void visit(const step& s, const frame& f) const noexcept {
    detail::visit([&](const auto& x) { run(x, f); }, s);
  }

  void run(const gemm_step& s, const frame& f) const noexcept {
    const bool cut_k = f.in_loop && s.k_step != 0, cut_n = f.in_loop && s.n_step != 0;
    const extent k0 = s.k_step * f.at, n0 = s.n_step * f.at;
    const bool finished = !cut_k || f.is_last;
    const rows_of<T> a = rows(s.a, f), c = rows(s.c, f);
    const extent N = cut_n ? s.n_step * f.length : s.N, K = cut_k ? s.k_step * f.length : s.K;
    shared_columns<T, Arch>(
        f.threads, f.count, K, N, s.rows.size(), [&](extent at, extent from, extent to) {
          const auto& r = s.rows[at];
          const gemm_panels<T> panels = part(s, r.weight + s.expert_step * f.expert, n0 + from, k0);
          const gemm_args<T> args{f.count,
                                  to - from,
                                  K,
                                  a.data + r.a,
                                  a.stride,
                                  panels,
                                  s.K,
                                  c.data + r.c + from,
                                  c.stride,
                                  s.accumulate || (cut_k && !f.is_first),
                                  plan_.sum_block,
                                  f.next,
                                  plan_.own_ahead};
          gemm<T, Arch>(args, [&](extent row, extent count, extent column, extent columns) {
            if (finished)
              finish(s.epilogues, f, args.c + row * args.ldc + column, args.ldc, row, count,
                     r.c + from + column, columns);
          });
        });
  }

  void run(const batched_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), b = rows(s.b, f), c = rows(s.c, f);
    loop_axes out(s.out), summed(s.summed);
    extent columns = s.columns;
    if (s.axis == batched_step::cut::out) {
      columns = columns / out[0].length * f.length;
      out[0].length = f.length;
    }
    const bool cut_sum = s.axis == batched_step::cut::summed;
    if (cut_sum) summed[0].length = f.length;
    const small_product<T, Arch> product(out, summed);
    for (extent t = 0; t < f.count; ++t) {
      T* row = c.data + t * c.stride;
      product(a.data + t * a.stride, b.data + t * b.stride, row,
              cut_sum && !f.is_first ? sum_into::started : sum_into::nothing);
      if (!cut_sum || f.is_last) finish(s.epilogues, f, row, 0, t, 1, 0, columns);
    }
  }

  void run(const reduce_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), c = rows(s.c, f);
    const small_product<T, Arch> sum(loop_axes(s.out), loop_axes(s.summed));
    for (extent t = 0; t < f.count; ++t) {
      T* row = c.data + t * c.stride;
      sum(a.data + t * a.stride, nullptr, row);
      finish(s.epilogues, f, row, 0, t, 1, 0, s.columns);
    }
  }

  void run(const selection_sum_step& s, const frame& f) const noexcept {
    const rows_of<T> selection = rows(s.selection, f), c = rows(s.c, f),
                     b = s.b.exists() ? rows(s.b, f) : rows_of<T>{};
    const auto row = [&](extent t) { return kept(selection, t, 0, s.keep); };
    selection_sum<T, Arch>(s, row, {b.data, b.stride}, c.data, f.arena, f.tokens, f.part, f.parts);
  }

  void run(const token_sum_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), b = s.b.exists() ? rows(s.b, f) : rows_of<T>{};
    token_sum<T, Arch>(s, {a.data, a.stride}, {b.data, b.stride}, rows(s.c, f).data, f.tokens,
                       f.part, f.parts);
  }

  static extent state_stride(extent keep) {
    return round_up(top_k_state_size<T, Arch>(keep), cache_line / sizeof(T));
  }

  // The state of one of the rows of a token's selection, and its kept entries.
  static T* state(const rows_of<T>& selection, extent token, extent row, extent keep) noexcept {
    return selection.data + token * selection.stride + row * state_stride(keep);
  }
  static selected<T> kept(const rows_of<T>& selection, extent token, extent row,
                          extent keep) noexcept {
    return top_k_result<T, Arch>(state(selection, token, row, keep), keep);
  }

  void run(const gather_step& s, const frame& f) const noexcept {
    const rows_of<T> selection = rows(s.selection, f), c = rows(s.c, f);
    const auto at = [&](extent t, extent r) {
      return t < f.count ? kept(selection, t, r, s.keep) : selected<T>{};
    };
    for (extent t = 0; t < f.count; ++t) {
      T* row = c.data + t * c.stride;
      if (s.rows == 0) std::fill_n(row, s.N, T(0));
      for (extent r = 0; r < s.rows; ++r) {
        const auto next = s.table_row != 0 ? selected<T>{}
                          : r + 1 < s.rows ? at(t, r + 1)
                                           : at(t + 1, 0);
        with_table(s.table, f, [&](auto table) {
          gather<T, Arch>(table + r * s.table_row, s.N, s.N, at(t, r), next, row, r != 0);
        });
      }
      finish(s.epilogues, f, row, 0, t, 1, 0, s.N);
    }
  }

  void run(const rescale_step& s, const frame& f) const noexcept {
    const rows_of<T> selection = rows(s.selection, f), factors = rows(s.factors, f),
                     c = rows(s.c, f);
    for (extent t = 0; t < f.count; ++t)
      for (extent r = 0; r < s.rows; ++r)
        rescale<T, Arch>({state(c, t, r, s.keep), s.keep}, kept(selection, t, r, s.keep),
                         factors.data + r * s.table_row);
  }

  void run(const sample_step& s, const frame& f) const noexcept {
    const rows_of<T> selection = rows(s.selection, f), x = rows(s.x, f), c = rows(s.c, f);
    for (extent t = 0; t < f.count; ++t)
      for (extent r = 0; r < s.rows; ++r) {
        const selected<T> from = kept(selection, t, r, s.keep);
        const top_k_state<T, Arch> made(state(c, t, r, s.keep), s.keep);
        made.count = static_cast<std::uint32_t>(from.count);
        std::copy_n(from.indices, from.count, made.indices);
        with_table(s.table, f, [&](auto table) {
          sample<T, Arch>(x.data + t * x.stride, table + r * s.table_row, s.K, from, made.values);
        });
        finish(s.epilogues, f, made.values, 0, t, 1, 0, from.count);
        join<T, Arch>(pass_kind::multiply, made.values, 0, 1, from.count, from.values, 0);
      }
  }

  void run(const pointwise_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), c = rows(s.c, f);
    const extent columns = f.in_loop ? s.column_step * f.length : s.columns;
    for (extent t = 0; t < f.count; ++t) {
      T* row = c.data + t * c.stride;
      std::copy_n(a.data + t * a.stride, columns, row);
      finish(s.epilogues, f, row, 0, t, 1, 0, columns);
    }
  }

  void run(const row_function_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), c = rows(s.c, f);
    const rows_of<T> bound = s.bounds != 0 ? rows(s.bound, f) : rows_of<T>{};
    for (extent t = 0; t < f.count; ++t)
      for (extent r = 0; r < s.rows; ++r)
        apply<T, Arch>(s.fn, s.parameter, a.data + t * a.stride + r * s.columns,
                       c.data + t * c.stride + r * s.columns, s.columns,
                       s.bounds != 0 ? bound.data[t * bound.stride + r % s.bounds] : T(0));
  }

  void run(const row_norm_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), c = rows(s.c, f);
    for (extent t = 0; t < f.count; ++t)
      for (extent r = 0; r < s.rows; ++r)
        c.data[t * c.stride + r] =
            norm<T, Arch>(s.which, a.data + t * a.stride + r * s.columns, s.columns);
  }

  void run(const append_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), c = rows(s.c, f);
    for (extent t = 0; t < f.count; ++t)
      for (extent r = 0; r < s.rows; ++r) {
        T* const row = c.data + t * c.stride + r * (s.columns + 1);
        std::copy_n(a.data + t * a.stride + r * s.columns, s.columns, row);
        row[s.columns] = 1;
      }
  }

  void run(const select_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), selection = rows(s.selection, f);
    const extent n = f.in_loop ? f.length : s.columns;
    for (extent t = 0; t < f.count; ++t)
      for (extent r = 0; r < s.rows; ++r) {
        T* const row = state(selection, t, r, s.keep);
        if (s.rule.what == selection_rule::kind::product_top_k) {
          T* const lists = state(selection, t, s.rows, s.keep);
          product_top_k<T, Arch>(row, s.rule, a.data + t * a.stride + 2 * r * s.list, s.list, lists,
                                 lists + state_stride(s.rule.each));
          continue;
        }
        const T* const scores = a.data + t * a.stride + r * s.columns;
        if (s.rule.what == selection_rule::kind::top_p) {
          top_p<T, Arch>(row, s.rule.mass, s.rule.weights, scores, n);
          continue;
        }
        if (s.rule.what == selection_rule::kind::nonzero) {
          nonzero_scan<T, Arch>(row, s.keep, scores, n, f.at, f.is_first);
          continue;
        }
        top_k_scan<T, Arch>(row, s.keep, scores, n, f.at, f.is_first, zeros_count(s.rule.weights));
        if (f.is_last) top_k_finish<T, Arch>(row, s.keep, s.rule.weights, scores, n);
      }
  }

  void run(const screen_step& s, const frame& f) const noexcept {
    if constexpr (std::is_same_v<T, float>) {
      const rows_of<T> a = rows(s.a, f), selection = rows(s.selection, f),
                       scratch = rows(s.scratch, f);
      const auto passes = [&](T* scores, extent first, extent count, extent t) {
        finish(s.epilogues, f, scores, 0, t, 1, first, count);
      };
      const auto passes_at = [&](T* scores, const std::uint32_t* columns, extent count, extent) {
        for (extent i = 0; i < count; ++i)
          finish(s.epilogues, f, scores + i, 0, 0, 1, columns[i], 1);
      };
      screening<Arch>(constants_.screened(s.weight), s.keep, s.rule.weights, plan_.sum_block,
                      passes, passes_at)
          .run(a.data, a.stride, f.count, scratch.data, scratch.stride, selection.data,
               selection.stride, f.next, f.threads);
    }
  }

  void run(const expert_choice_step& s, const frame& f) const noexcept {
    const rows_of<T> scores = rows(s.scores, f), ranked = rows(s.ranked, f),
                     selection = rows(s.selection, f);
    auto* const order =
        reinterpret_cast<std::uint32_t*>(f.bound->call + s.scratch * f.bound->call_rows);
    expert_choice<T, Arch>(s.rule, {scores.data, scores.stride}, {ranked.data, ranked.stride},
                           f.tokens, s.experts, order, selection.data, selection.stride);
  }

  void run(const kept_step& s, const frame& f) const noexcept {
    const rows_of<T> selection = rows(s.selection, f), c = rows(s.c, f);
    for (extent t = 0; t < f.count; ++t)
      for (extent r = 0; r < s.rows; ++r) {
        T* const row = c.data + t * c.stride + r * s.keep;
        const selected<T> entries = kept(selection, t, r, s.keep);
        if (s.what == kept_part::value) kept_values(entries, row, s.keep);
        else kept_indices(entries, row, s.keep);
      }
  }

  void run(const expand_step& s, const frame& f) const noexcept {
    const rows_of<T> selection = rows(s.selection, f), c = rows(s.c, f);
    for (extent t = 0; t < f.count; ++t)
      for (extent r = 0; r < s.rows; ++r) {
        const selected<T> from = kept(selection, t, r, s.keep);
        T* row = c.data + t * c.stride + r * s.columns;
        std::fill_n(row, s.columns, T(0));
        for (extent k = 0; k < from.count; ++k) row[from.indices[k]] = from.values[k];
      }
  }

  void run(const pick_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), c = rows(s.c, f);
    const small_product<T, Arch> copy(loop_axes(s.out), loop_axes());
    for (extent r = 0; r < f.count; ++r)
      copy(a.data + f.group[r].token * a.stride, nullptr, c.data + r * c.stride);
  }

  void run(const put_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), selection = rows(s.selection, f), c = rows(s.c, f);
    constexpr std::uint32_t first = 0;
    for (extent r = 0; r < f.count; ++r) {
      const auto [token, place] = f.group[r];
      const T* const weight = kept(selection, token, 0, s.keep).values + place;
      gather<T, Arch>(a.data + r * a.stride, 0, s.columns, {weight, &first, 1}, {},
                      c.data + token * c.stride, true);
    }
  }

  // Runs the rows of each expert, a chunk at a time.
  void run(const group_step& s, const frame& outer) const noexcept {
    const rows_of<T> selection = rows(s.selection, outer), c = rows(s.c, outer);
    auto* const starts = reinterpret_cast<std::uint32_t*>(outer.arena + s.scratch);
    auto* const lists = reinterpret_cast<group_row*>(starts + s.experts + 1);
    for (extent t = 0; t < outer.count; ++t) std::fill_n(c.data + t * c.stride, s.columns, T(0));
    sort_by_expert(s.experts, outer.count, starts, lists,
                   [&](extent t) { return kept(selection, t, 0, s.keep); });
    frame f = outer;
    // Now starts[e] is the end of the rows of expert e.
    const auto with_rows = [&](extent e, extent row) {
      while (e < s.experts && starts[e] <= row) ++e;
      return e;
    };
    extent row = 0;
    for (extent then = with_rows(0, 0); then < s.experts; row += f.count) {
      f.expert = then;
      f.count = std::min(s.rows, starts[f.expert] - row);
      f.group = lists + row;
      then = with_rows(f.expert, row + f.count);
      for (extent i = 0; i < s.body.size(); ++i) {
        f.next = first_weights(s.body, i + 1, 0, f.expert);
        if (f.next == nullptr)
          f.next = then < s.experts ? first_weights(s.body, 0, 0, then) : outer.next;
        visit(s.body[i], f);
      }
    }
    for (extent t = 0; t < outer.count; ++t)
      finish(s.epilogues, outer, c.data + t * c.stride, 0, t, 1, 0, s.columns);
  }

  void run(const exclude_step& s, const frame& f) const noexcept {
    const rows_of<T> c = rows(s.c, f);
    for (extent t = 0; t < f.count; ++t) {
      typename excluder<T, Arch>::rows from{};
      for (extent k = 0; k < s.operands.size(); ++k) {
        const rows_of<T> a = rows(s.operands[k], f);
        from[k] = a.data + t * a.stride;
      }
      excluder<T, Arch>(s, from, c.data + t * c.stride).run();
    }
  }

  void run(const loop_step& s, const frame& outer) const noexcept {
    frame f = outer;
    f.in_loop = true;
    for (f.at = 0; f.at < s.length; f.at += s.chunk) {
      f.length = std::min(s.chunk, s.length - f.at);
      f.is_first = f.at == 0;
      f.is_last = f.at + f.length == s.length;
      for (extent i = 0; i < s.body.size(); ++i) {
        f.next = first_weights(s.body, i + 1, f.at);
        if (f.next == nullptr)
          f.next = f.is_last ? outer.next : first_weights(s.body, 0, f.at + f.length);
        visit(s.body[i], f);
      }
    }
  }

  // Returns the first panel that the steps from `from` on read, at a position of their loop or for
  // an expert of their group; the previous step prefetches it.
  const std::byte* first_weights(const std::vector<step>& steps, extent from, extent at,
                                 extent expert = 0) const noexcept {
    for (; from < steps.size(); ++from) {
      if (const auto* g = get_if<gemm_step>(&steps[from]))
        return part(*g, g->expert_step * expert, g->n_step * at, g->k_step * at).data;
      if (const auto* s = get_if<screen_step>(&steps[from]))
        return constants_.screened(s->weight).panels.data();
      if (const auto* l = get_if<loop_step>(&steps[from]))
        if (const std::byte* w = first_weights(l->body, 0, 0)) return w;
    }
    return nullptr;
  }

  plan plan_;
  constants<T, Arch> constants_;
};

}  // namespace fmoe::cpu
