// SPDX-License-Identifier: MIT
// Runs a plan on the CPU: for a tile of tokens, the steps from top to bottom. It knows steps and
// kernels, but no layer. The results of a tile do not depend on which tile it is, which thread runs
// it, or how many rows it has.
#pragma once

#include <atomic>

#include <fmoe/backend/cpu/kernels/gather.hpp>
#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/group_rows.hpp>
#include <fmoe/backend/cpu/kernels/shared_columns.hpp>
#include <fmoe/backend/cpu/kernels/small_product.hpp>
#include <fmoe/backend/cpu/parallel.hpp>
#include <fmoe/backend/cpu/parts.hpp>
#include <fmoe/backend/cpu/row_steps.hpp>
#include <fmoe/plan/accesses.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
class executor : row_steps<T, Arch> {
  using base = row_steps<T, Arch>;
  using base::adds, base::constants_, base::finish, base::first_weights, base::is_computed,
      base::part, base::kept, base::plan_, base::rows, base::run, base::sharing;

 public:
  // Packs the weights and computes the plan's constants. The plan's storages name the leaves by
  // number.
  executor(step_plan p, std::span<const ir::leaf_node> leaves, extent threads = 1)
      : base(std::move(p), leaves),
        threads_(threads),
        changed_(plan_.storages.size(), true) {
    for (const step& s : plan_.prologue) prologue_accesses_.push_back(accesses(plan_, s));
    make_constants();
  }

  // Reads the marked leaves again, and makes what follows from them again, where it lies. Returns
  // false if it cannot.
  bool refresh(std::span<const ir::leaf_node> leaves, std::span<const bool> changed) {
    for (extent s = 0; s < plan_.storages.size(); ++s) {
      const storage_row& row = plan_.storages[s];
      const bool is_leaf =
          row.where == storage_row::kind::leaf || row.where == storage_row::kind::input;
      changed_[s] = is_leaf && changed[row.source];
      if (changed_[s] && is_quantized_type(leaves[row.source].type)) return false;
    }
    for (extent s = 0; s < plan_.storages.size(); ++s)
      if (changed_[s]) constants_.read_leaf(s, leaves[plan_.storages[s].source]);
    make_constants();
    return true;
  }

  const step_plan& steps() const { return plan_; }

  // True if a call can add to a result: one step, a sum over tokens, makes it, and none reads it.
  bool can_add(extent result) const {
    extent sums = 0, uses = 0;
    for (const step& s : plan_.steps) {
      const bool is_sum = get_if<token_sum_step>(&s) != nullptr ||
                          get_if<selection_sum_step>(&s) != nullptr ||
                          get_if<expert_sum_step>(&s) != nullptr;
      for (const access& a : accesses(plan_, s)) {
        const storage_row& row = plan_.storages[a.where.storage];
        if (row.where != storage_row::kind::output || row.source != result) continue;
        ++uses;
        sums += is_sum && a.mode == access_mode::write;
      }
    }
    return sums == 1 && uses == 1;
  }

  // Runs one stage of one tile of `count` rows, at most the plan's tile. Its first row is row
  // `first` of the call and of the graph's own inputs. `arena` is aligned to a cache line.
  // A crew may share products, by their columns, and the experts of groups, if there are as many
  // arenas: the first of the others is `others` elements behind this one, and each next one
  // `apart`.
  void run(const binding<T>& bound, extent first, extent count, T* arena, extent stage = 0,
           crew& threads = crew::alone(), extent others = 0, extent apart = 0) const noexcept {
    frame f{first, count, &bound, arena};
    f.threads = &threads;
    f.others = others;
    f.apart = apart;
    run_all(plan_.steps, plan_.shared, plan_.stages[stage], f, [&](extent then) {
      const std::byte* const next = first_weights(plan_.steps, then, 0);
      return next != nullptr ? next : first_weights(plan_.steps, 0, 0);
    });
  }

  // Returns the parts of a stage that runs once for each call: for each step as many as this number
  // of threads can use.
  extent parts(extent stage, extent tokens, extent threads) const noexcept {
    extent n = 0;
    for (extent i = plan_.stages[stage].first; i < plan_.stages[stage].end; ++i)
      n += parts_of(plan_.steps[i], tokens, threads);
    return n;
  }

  // Lists the rows of the sparse results that a stage makes. It comes before the stage's parts.
  void list_rows(const binding<T>& bound, extent tokens, extent stage) const noexcept {
    const frame f{0, 1, &bound, nullptr};
    for (extent i = plan_.stages[stage].first; i < plan_.stages[stage].end; ++i)
      if (const auto* s = get_if<selection_sum_step>(&plan_.steps[i]); s != nullptr && s->is_sparse)
        base::list(*s, f, tokens);
  }

  // Runs one of these parts, for a call of `tokens` tokens. Parts are independent of each other.
  void run_part(const binding<T>& bound, extent tokens, T* arena, extent stage, extent number,
                extent threads) const noexcept {
    extent i = plan_.stages[stage].first;
    extent count = parts_of(plan_.steps[i], tokens, threads);
    for (; number >= count; count = parts_of(plan_.steps[i], tokens, threads)) {
      number -= count;
      ++i;
    }
    frame f{0, 1, &bound, arena};
    f.tokens = tokens;
    f.part = number;
    f.parts = count;
    visit(plan_.steps[i], f);
  }

 private:
  using frame = cpu::frame<T>;

  // Packs the weights that changed, and runs the steps of the prologue that they concern.
  void make_constants() {
    const auto pack = [&](bool computed) {
      for (extent w = 0; w < plan_.weights.size(); ++w) {
        const extent s = plan_.weights[w].storage;
        if (is_computed(s) == computed && changed_[s]) constants_.pack(plan_, w, threads_);
      }
    };
    pack(false);
    mark_changed();
    const binding<T> none;
    const frame f{0, 1, &none, nullptr};
    for (extent i = 0; i < plan_.prologue.size(); ++i) {
      const bool makes_again = std::ranges::any_of(prologue_accesses_[i], [&](const access& a) {
        return a.mode != access_mode::read && changed_[a.where.storage];
      });
      if (makes_again && !transposes(plan_.prologue[i], f)) visit(plan_.prologue[i], f);
    }
    pack(true);
    constants_.release_packed(plan_);
  }

  // Marks the constants that follow from what changed. A constant that several steps make is made
  // by all of them again.
  void mark_changed() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (const access_list& list : prologue_accesses_) {
        const bool is_changed =
            std::ranges::any_of(list, [&](const access& a) { return changed_[a.where.storage]; });
        if (!is_changed) continue;
        for (const access& a : list) {
          if (a.mode == access_mode::read || changed_[a.where.storage]) continue;
          changed_[a.where.storage] = true;
          goes_on = true;
        }
      }
    }
  }

  // Runs a step that transposes a matrix on all threads; returns false for other steps.
  bool transposes(const step& s, const frame& f) const {
    const auto* const r = get_if<reduce_step>(&s);
    if (r == nullptr || !r->summed.empty() || !r->epilogues.empty()) return false;
    loop_axes out;
    for (const nest_axis& x : r->out) out.join(x);
    if (out.size() != 2 || out[0].a != 1 || out[1].c != 1) return false;
    constexpr extent together = 64;
    const T* const from = rows(r->a, f).data;
    T* const to = rows(r->c, f).data;
    const nest_axis columns = out[0], along = out[1];
    for_units(threads_, divide_up(columns.length, together), [&](extent i) {
      const extent first = i * together;
      transpose<T, Arch, true, true>(from + first, along.a, along.length,
                                     std::min(together, columns.length - first),
                                     to + first * columns.c, columns.c);
      end_lines<Arch>();
    });
    return true;
  }

  // Runs steps in order; threads share the rows of some. weights_from(i) returns the weights that
  // are read first from step i on.
  void run_all(const vector<step>& steps, const vector<row_range>& shared, const stage& all,
               frame& f, const auto& weights_from) const noexcept {
    auto range = shared.begin();
    for (extent i = all.first; i < all.end; ++i) {
      while (range != shared.end() && range->first < i) ++range;
      if (f.threads->size() > 1 && range != shared.end() && range->first == i) {
        run_rows(steps, *range, f);
        i = range->end - 1;
        continue;
      }
      f.next = weights_from(i + 1);
      visit(steps[i], f);
    }
  }

  void run_rows(const vector<step>& steps, const row_range& s, const frame& whole) const noexcept {
    const extent parts = s.parts(whole.count, whole.threads->size());
    whole.threads->run(parts, [&](extent thread) noexcept {
      frame f = whole;
      f.threads = &crew::alone();
      f.row = whole.count * thread / parts;
      f.count = whole.count * (thread + 1) / parts - f.row;
      for (extent i = s.first; i < s.end; ++i) visit(steps[i], f);
    });
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
    const auto panel_rows = [&](extent k) { return base::panel_rows(s.weight, k); };
    const row_rounding rounding = plan_.weights[s.weight].rounding;
    const bool is_rounded = rounding != row_rounding::none;
    T* const rounded = f.arena + plan_.rounded + f.own;
    const extent stride = rounded_stride(K);
    for (extent at = 0; is_rounded && at < s.rows.size(); ++at)
      constants_.stored(s.weight).round_rows(rounding, a.data + s.rows[at].a, a.stride, f.count, K,
                                             rounded + at * f.count * stride, stride);
    shared_columns<T, Arch>(
        sharing(f), f.count, K, N, s.rows.size(), [&](extent at, extent from, extent to) {
          const auto& r = s.rows[at];
          const extent weight = r.weight + s.expert_step * f.expert;
          const gemm_panels<T> panels = part(s, weight, n0 + from, k0);
          const std::byte* const next = to < N ? part(s, weight, n0 + to, k0).data : f.next;
          const gemm_args<T> args{f.count,
                                  to - from,
                                  panel_rows(K),
                                  is_rounded ? rounded + at * f.count * stride : a.data + r.a,
                                  is_rounded ? stride : a.stride,
                                  panels,
                                  panel_rows(s.K),
                                  c.data + r.c + from,
                                  c.stride,
                                  s.accumulate || (cut_k && !f.is_first),
                                  panel_rows(plan_.sum_block),
                                  next,
                                  plan_.own_ahead,
                                  plan_.side_by_side,
                                  plan_.l2};
          gemm<T, Arch>(args, [&](extent row, extent count, extent column, extent columns) {
            if (finished)
              finish(s.epilogues, f, args.c + row * args.ldc + column, args.ldc, row, count,
                     r.c + from + column, columns);
          });
        });
  }

  void run(const token_sum_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), b = s.b.exists() ? rows(s.b, f) : rows_of<T>{};
    token_sum<T, Arch>(s, {a.data, a.stride}, {b.data, b.stride}, rows(s.c, f).data, f.arena,
                       f.tokens, f.part, f.parts, adds(s.c, f));
  }

  void run(const pick_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), c = rows(s.c, f);
    const small_product<T, Arch> copy(loop_axes(s.out), loop_axes());
    const auto from = [&](extent r) {
      return a.data + f.group[r].token * a.stride + f.group[r].place * s.place;
    };
    const bool neighbours = s.out.size() == 1 && s.out[0].a == 1;
    for (extent r = 0; r < f.count; ++r) {
      if (neighbours && r + 1 < f.count) fetch_row(from(r + 1), s.out[0].length);
      copy(from(r), nullptr, c.data + r * c.stride);
    }
  }

  void run(const keep_step& s, const frame& f) const noexcept {
    const rows_of<T> a = rows(s.a, f), c = rows(s.c, f);
    for (extent r = 0; r < f.count; ++r)
      std::copy_n(a.data + r * a.stride, s.columns,
                  c.data + f.group[r].token * c.stride + f.group[r].place * s.columns);
  }

  void run(const expert_sum_step& s, const frame& f) const noexcept {
    const rows_of<T> selection = rows(s.selection, f), c = rows(s.c, f), a = rows(s.a.at, f),
                     b = s.b.at.exists() ? rows(s.b.at, f) : rows_of<T>{};
    const auto row = [&](extent t) { return kept(selection, t, 0, s.keep); };
    expert_sum<T, Arch>(s, row, {a.data, a.stride}, {b.data, b.stride}, c.data, f.arena, f.tokens,
                        f.part, f.parts, adds(s.c, f));
  }

  // Adds those of some rows of a group whose tokens are in [first, end).
  void put(const put_step& s, const frame& f, extent count, extent first,
           extent end) const noexcept {
    const rows_of<T> a = rows(s.a, f), selection = rows(s.selection, f), c = rows(s.c, f);
    constexpr std::uint32_t row = 0;
    for (extent r = 0; r < count; ++r) {
      const auto [token, place] = f.group[r];
      if (token < first || token >= end) continue;
      const T* const weight = kept(selection, token, 0, s.keep).values + place;
      gather<T, Arch>(a.data + r * a.stride, 0, s.columns, {weight, &row, 1}, {},
                      c.data + token * c.stride, true);
    }
  }
  void run(const put_step& s, const frame& f) const noexcept { put(s, f, f.count, 0, all); }

  void run(const group_step& s, const frame& f) const noexcept {
    const rows_of<T> selection = rows(s.selection, f);
    const group_list list =
        sort_by_expert(s.experts, f.count, reinterpret_cast<std::uint32_t*>(f.arena + s.scratch),
                       [&](extent t) { return kept(selection, t, 0, s.keep); });
    if (holds_alternative<keep_step>(s.body.back())) return keep_rows(s, list, f);
    const put_step& last = get<put_step>(s.body.back());
    const bool can_share = f.others != 0 && plan_.storages[last.a.storage].listed;
    if (can_share && shares_experts(static_cast<double>(list.busy.size()), f.threads->size()))
      return share_experts(s, list, f);
    sum_experts(s, f, 0, f.count, [&] {
      frame inner = f;
      for (extent i = 0; i < list.busy.size(); ++i)
        run_expert(s, s.body.size(), list, i, i + 1, inner);
    });
  }

  // A group whose rows stay by themselves. Places that a token does not use are 0.
  void keep_rows(const group_step& s, const group_list& list, const frame& f) const noexcept {
    const rows_of<T> selection = rows(s.selection, f), c = rows(s.c, f);
    const extent columns = get<keep_step>(s.body.back()).columns;
    for (extent t = 0; t < f.count; ++t) {
      const extent used = kept(selection, t, 0, s.keep).count * columns;
      std::fill_n(c.data + t * c.stride + used, s.columns - used, T(0));
    }
    if (f.others != 0 && shares_experts(static_cast<double>(list.busy.size()), f.threads->size()))
      return share_rows(s, s.body.size(), list, f);
    frame inner = f;
    for (extent i = 0; i < list.busy.size(); ++i)
      run_expert(s, s.body.size(), list, i, i + 1, inner);
  }

  // Sets the results of some tokens to 0, and finishes them after `add`.
  void sum_experts(const group_step& s, const frame& f, extent first, extent end,
                   const auto& add) const noexcept {
    const rows_of<T> c = rows(s.c, f);
    for (extent t = first; t < end; ++t) std::fill_n(c.data + t * c.stride, s.columns, T(0));
    add();
    for (extent t = first; t < end; ++t)
      finish(s.epilogues, f, c.data + t * c.stride, 0, t, 1, 0, s.columns);
  }

  // Runs the first steps of a group on the rows of its i-th busy expert, a chunk at a time. The
  // next one, if there is one, will be expert number `then`.
  void run_expert(const group_step& s, extent steps, const group_list& list, extent i, extent then,
                  frame& f) const noexcept {
    const std::byte* const outer = f.next;
    f.expert = list.busy[i];
    const extent end = list.ends[f.expert];
    for (f.listed = list.first(f.expert); f.listed < end; f.listed += f.count) {
      f.count = std::min(s.rows, end - f.listed);
      f.group = list.rows + f.listed;
      const bool has_more = f.listed + f.count < end;
      run_all(s.body, {}, {false, 0, steps}, f, [&](extent from) {
        const std::byte* const next = first_weights(s.body, from, 0, f.expert);
        if (next != nullptr) return next;
        if (!has_more && then >= list.busy.size()) return outer;
        return first_weights(s.body, 0, 0, has_more ? f.expert : list.busy[then]);
      });
    }
    f.next = outer;
  }

  // Each expert is one thread's, the one with the most rows first. Then threads share the tokens:
  // to each of them the results of its experts are added in order.
  void share_experts(const group_step& s, const group_list& list, const frame& f) const noexcept {
    share_rows(s, s.body.size() - 1, list, f);
    const extent threads = f.threads->size();
    f.threads->run(threads, [&](extent thread) noexcept {
      const extent first = f.count * thread / threads, end = f.count * (thread + 1) / threads;
      sum_experts(s, f, first, end, [&] {
        frame all_rows = f;
        all_rows.group = list.rows;
        put(get<put_step>(s.body.back()), all_rows, list.ends[s.experts - 1], first, end);
      });
    });
  }
  void share_rows(const group_step& s, extent steps, const group_list& list,
                  const frame& f) const noexcept {
    std::ranges::sort(list.busy, {}, [&](extent e) { return std::pair(~list.count(e), e); });
    const extent threads = f.threads->size();
    std::atomic<extent> next{0};
    f.threads->run(threads, [&](extent thread) noexcept {
      frame inner = f;
      inner.threads = &crew::alone();
      inner.own = thread == 0 ? 0 : f.others + (thread - 1) * f.apart;
      for (extent i = next++; i < list.busy.size(); i = next++)
        run_expert(s, steps, list, i, next, inner);
    });
  }

  void run(const loop_step& s, const frame& outer) const noexcept {
    frame f = outer;
    f.in_loop = true;
    for (f.at = 0; f.at < s.length; f.at += s.chunk) {
      f.length = std::min(s.chunk, s.length - f.at);
      f.is_first = f.at == 0;
      f.is_last = f.at + f.length == s.length;
      run_all(s.body, s.shared, {false, 0, s.body.size()}, f, [&](extent i) {
        const std::byte* const next = first_weights(s.body, i, f.at);
        if (next != nullptr) return next;
        return f.is_last ? outer.next : first_weights(s.body, 0, f.at + f.length);
      });
    }
  }

  extent threads_;                         // that make constants
  vector<bool> changed_;                   // by storage
  vector<access_list> prologue_accesses_;  // by step
};

}  // namespace fmoe::cpu
