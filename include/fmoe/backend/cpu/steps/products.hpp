// SPDX-License-Identifier: MIT
// Runs products with packed weights, and sums over tokens.
#pragma once

#include <fmoe/backend/cpu/kernels/expert_sum.hpp>
#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/shared_columns.hpp>
#include <fmoe/backend/cpu/kernels/token_sum.hpp>
#include <fmoe/backend/cpu/steps/selections.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
inline void run(const gemm_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const bool cut_k = f.in_loop && s.k_step != 0, cut_n = f.in_loop && s.n_step != 0;
  const extent k0 = s.k_step * f.at, n0 = s.n_step * f.at;
  const bool finished = !cut_k || f.is_last;
  const rows_of<T> a = in.rows(s.a, f), c = in.rows(s.c, f);
  const extent N = cut_n ? s.n_step * f.length : s.N, K = cut_k ? s.k_step * f.length : s.K;
  const auto panel_rows = [&](extent k) { return in.panel_rows(s.weight, k); };
  const row_rounding rounding = in.plan.weights[s.weight].rounding;
  const bool is_rounded = rounding != row_rounding::none;
  T* const rounded = f.arena + in.plan.rounded + f.own;
  const extent stride = rounded_stride(K);
  for (extent at = 0; is_rounded && at < s.rows.size(); ++at)
    in.constants.stored(s.weight).round_rows(rounding, a.data + s.rows[at].a, a.stride, f.count, K,
                                             rounded + at * f.count * stride, stride);
  shared_columns<T, Arch>(
      sharing(in, f), f.count, K, N, s.rows.size(), [&](extent at, extent from, extent to) {
        const auto& r = s.rows[at];
        const extent weight = r.weight + s.expert_step * f.expert;
        const gemm_panels<T> panels = in.part(s, weight, n0 + from, k0);
        const std::byte* const next = to < N ? in.part(s, weight, n0 + to, k0).data : f.next;
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
                                panel_rows(in.plan.sum_block),
                                next,
                                in.plan.own_ahead,
                                in.plan.side_by_side,
                                in.plan.l2};
        gemm<T, Arch>(args, [&](extent row, extent count, extent column, extent columns) {
          if (finished)
            in.finish(s.epilogues, f, args.c + row * args.ldc + column, args.ldc, row, count,
                      r.c + from + column, columns);
        });
      });
}

template <class T, class Arch>
inline void run(const token_sum_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> a = in.rows(s.a, f), b = s.b.exists() ? in.rows(s.b, f) : rows_of<T>{};
  token_sum<T, Arch>(s, {a.data, a.stride}, {b.data, b.stride}, in.rows(s.c, f).data, f.arena,
                     f.tokens, f.part, f.parts, in.adds(s.c, f));
}

template <class T, class Arch>
inline void run(const expert_sum_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> selection = in.rows(s.selection, f), c = in.rows(s.c, f), a = in.rows(s.a.at, f),
                   b = s.b.at.exists() ? in.rows(s.b.at, f) : rows_of<T>{};
  const auto row = [&](extent t) { return kept<T, Arch>(selection, t, 0, s.keep); };
  expert_sum<T, Arch>(s, row, {a.data, a.stride}, {b.data, b.stride}, c.data, f.arena, f.tokens,
                      f.part, f.parts, in.adds(s.c, f));
}

}  // namespace fmoe::cpu
