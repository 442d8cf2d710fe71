// SPDX-License-Identifier: MIT
// Runs the steps that make each row from the same row of what they read, without a selection:
// products of what depends on tokens, sums along a row, and functions of rows.
#pragma once

#include <fmoe/backend/cpu/kernels/exclude.hpp>
#include <fmoe/backend/cpu/kernels/row_function.hpp>
#include <fmoe/backend/cpu/kernels/small_product.hpp>
#include <fmoe/backend/cpu/operands.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
inline void run(const batched_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> a = in.rows(s.a, f), b = in.rows(s.b, f), c = in.rows(s.c, f);
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
    if (!cut_sum || f.is_last) in.finish(s.epilogues, f, row, 0, t, 1, 0, columns);
  }
}

template <class T, class Arch>
inline void run(const reduce_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> a = in.rows(s.a, f), c = in.rows(s.c, f);
  const small_product<T, Arch> sum(loop_axes(s.out), loop_axes(s.summed));
  for (extent t = 0; t < f.count; ++t) {
    T* row = c.data + t * c.stride;
    sum(a.data + t * a.stride, nullptr, row);
    in.finish(s.epilogues, f, row, 0, t, 1, 0, s.columns);
  }
}

template <class T, class Arch>
inline void run(const pointwise_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> a = in.rows(s.a, f), c = in.rows(s.c, f);
  const extent columns = f.in_loop ? s.column_step * f.length : s.columns;
  for (extent t = 0; t < f.count; ++t) {
    T* row = c.data + t * c.stride;
    std::copy_n(a.data + t * a.stride, columns, row);
    in.finish(s.epilogues, f, row, 0, t, 1, 0, columns);
  }
}

template <class T, class Arch>
inline void run(const row_function_step& s, const operands<T, Arch>& in,
                const frame<T>& f) noexcept {
  const rows_of<T> a = in.rows(s.a, f), c = in.rows(s.c, f);
  const rows_of<T> bound = s.bounds != 0 ? in.rows(s.bound, f) : rows_of<T>{};
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r)
      apply<T, Arch>(s.fn, s.parameter, s.groups, a.data + t * a.stride + r * s.columns,
                     c.data + t * c.stride + r * s.columns, s.columns,
                     s.bounds != 0 ? bound.data[t * bound.stride + r % s.bounds] : T(0));
}

template <class T, class Arch>
inline void run(const row_norm_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> a = in.rows(s.a, f), c = in.rows(s.c, f);
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r)
      c.data[t * c.stride + r] =
          norm<T, Arch>(s.which, a.data + t * a.stride + r * s.columns, s.columns);
}

template <class T, class Arch>
inline void run(const append_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> a = in.rows(s.a, f), c = in.rows(s.c, f);
  for (extent t = 0; t < f.count; ++t)
    for (extent r = 0; r < s.rows; ++r) {
      T* const row = c.data + t * c.stride + r * (s.columns + 1);
      std::copy_n(a.data + t * a.stride + r * s.columns, s.columns, row);
      row[s.columns] = 1;
    }
}

template <class T, class Arch>
inline void run(const exclude_step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  const rows_of<T> c = in.rows(s.c, f);
  for (extent t = 0; t < f.count; ++t) {
    typename excluder<T, Arch>::rows from{};
    for (extent k = 0; k < s.operands.size(); ++k) {
      const rows_of<T> a = in.rows(s.operands[k], f);
      from[k] = a.data + t * a.stride;
    }
    excluder<T, Arch>(s, from, c.data + t * c.stride).run();
  }
}

}  // namespace fmoe::cpu
