// SPDX-License-Identifier: MIT
// Runs a group: for each expert, steps on the rows of the tokens that selected it.
#pragma once

#include <atomic>

#include <fmoe/backend/cpu/kernels/gather.hpp>
#include <fmoe/backend/cpu/kernels/group_rows.hpp>
#include <fmoe/backend/cpu/kernels/small_product.hpp>
#include <fmoe/backend/cpu/steps/loops.hpp>
#include <fmoe/backend/cpu/steps/selections.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
inline void run(const pick_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> a = in.rows(s.a, f), c = in.rows(s.c, f);
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

template <class T, class Arch>
inline void run(const keep_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> a = in.rows(s.a, f), c = in.rows(s.c, f);
  for (extent r = 0; r < f.count; ++r)
    std::copy_n(a.data + r * a.stride, s.columns,
                c.data + f.group[r].token * c.stride + f.group[r].place * s.columns);
}

// Adds those of some rows of a group whose tokens are in [first, end).
template <class T, class Arch>
inline void put(const put_step& s, const operands<T, Arch>& in, const frame<T>& f, extent count,
                extent first, extent end) noexcept {
  const rows_of<T> a = in.rows(s.a, f), selection = in.rows(s.selection, f), c = in.rows(s.c, f);
  constexpr std::uint32_t row = 0;
  for (extent r = 0; r < count; ++r) {
    const auto [token, place] = f.group[r];
    if (token < first || token >= end) continue;
    const T* const weight = kept<T, Arch>(selection, token, 0, s.keep).values + place;
    gather<T, Arch>(a.data + r * a.stride, 0, s.columns, {weight, &row, 1}, {},
                    c.data + token * c.stride, true);
  }
}
template <class T, class Arch>
inline void run(const put_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  put(s, in, f, f.count, 0, all);
}

// A group with the lists of its experts' tokens.
template <class T, class Arch>
struct group_run {
  const group_step& s;
  const operands<T, Arch>& in;
  const frame<T>& whole;
  group_list list;

  void run() const noexcept {
    if (holds_alternative<keep_step>(s.body.back())) return keep_rows();
    const put_step& last = get<put_step>(s.body.back());
    if (in.plan.storages[last.a.storage].listed && can_share()) return share_experts();
    sum_experts(0, whole.count, [&] { run_experts(); });
  }

 private:
  bool can_share() const noexcept {
    return whole.others != 0 &&
           shares_experts(static_cast<double>(list.busy.size()), whole.threads->size());
  }

  void run_experts() const noexcept {
    frame<T> inner = whole;
    for (extent i = 0; i < list.busy.size(); ++i) run_expert(s.body.size(), i, i + 1, inner);
  }

  // A group whose rows stay by themselves. Places that a token does not use are 0.
  void keep_rows() const noexcept {
    const rows_of<T> selection = in.rows(s.selection, whole), c = in.rows(s.c, whole);
    const extent columns = get<keep_step>(s.body.back()).columns;
    for (extent t = 0; t < whole.count; ++t) {
      const extent used = kept<T, Arch>(selection, t, 0, s.keep).count * columns;
      std::fill_n(c.data + t * c.stride + used, s.columns - used, T(0));
    }
    if (can_share()) return share_rows(s.body.size());
    run_experts();
  }

  // Sets the results of some tokens to 0, and finishes them after `add`.
  void sum_experts(extent first, extent end, const auto& add) const noexcept {
    const rows_of<T> c = in.rows(s.c, whole);
    for (extent t = first; t < end; ++t) std::fill_n(c.data + t * c.stride, s.columns, T(0));
    add();
    for (extent t = first; t < end; ++t)
      in.finish(s.epilogues, whole, c.data + t * c.stride, 0, t, 1, 0, s.columns);
  }

  // Runs the first steps of a group on the rows of its i-th busy expert, a chunk at a time. The
  // next one, if there is one, will be expert number `then`.
  void run_expert(extent steps, extent i, extent then, frame<T>& f) const noexcept {
    const std::byte* const outer = f.next;
    f.expert = list.busy[i];
    const extent end = list.ends[f.expert];
    for (f.listed = list.first(f.expert); f.listed < end; f.listed += f.count) {
      f.count = std::min(s.rows, end - f.listed);
      f.group = list.rows + f.listed;
      const bool has_more = f.listed + f.count < end;
      run_steps(s.body, 0, steps, {}, in, f, [&](extent from) {
        const std::byte* const next = in.first_weights(s.body, from, 0, f.expert);
        if (next != nullptr) return next;
        if (!has_more && then >= list.busy.size()) return outer;
        return in.first_weights(s.body, 0, 0, has_more ? f.expert : list.busy[then]);
      });
    }
    f.next = outer;
  }

  // Each expert is one thread's, the one with the most rows first. Then threads share the tokens:
  // to each of them the results of its experts are added in order.
  void share_experts() const noexcept {
    share_rows(s.body.size() - 1);
    const extent threads = whole.threads->size();
    whole.threads->run(threads, [&](extent thread) noexcept {
      const extent first = whole.count * thread / threads,
                   end = whole.count * (thread + 1) / threads;
      sum_experts(first, end, [&] {
        frame<T> all_rows = whole;
        all_rows.group = list.rows;
        put(get<put_step>(s.body.back()), in, all_rows, list.ends[s.experts - 1], first, end);
      });
    });
  }
  void share_rows(extent steps) const noexcept {
    std::ranges::sort(list.busy, {}, [&](extent e) { return std::pair(~list.count(e), e); });
    const extent threads = whole.threads->size();
    std::atomic<extent> next{0};
    whole.threads->run(threads, [&](extent thread) noexcept {
      frame<T> inner = whole;
      inner.threads = &crew::alone();
      inner.own = thread == 0 ? 0 : whole.others + (thread - 1) * whole.apart;
      for (extent i = next++; i < list.busy.size(); i = next++) run_expert(steps, i, next, inner);
    });
  }
};

template <class T, class Arch>
inline void run(const group_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f);
  auto* const scratch = reinterpret_cast<std::uint32_t*>(f.arena + s.scratch);
  const auto entries = [&](extent t) { return kept<T, Arch>(selection, t, 0, s.keep); };
  group_run<T, Arch>{s, in, f, sort_by_expert(s.experts, f.count, scratch, entries)}.run();
}

}  // namespace fmoe::cpu
