// SPDX-License-Identifier: MIT
// Sums over tokens that are products of two matrices, c[m, n] = the sum of a[t, m] b[t, n], by the
// kernels of gemm: of a block of tokens a is transposed, and b packed in panels, some columns at a
// time. A block is summed from 0 in plain order, as token_sum.hpp does, so the bits are the same.
#pragma once

#include <optional>

#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/small_product.hpp>

namespace fmoe::cpu {

template <class T>
struct token_rows {
  const T* data = nullptr;
  extent stride = 0;
};

struct token_product {
  nest_axis rows, columns;  // of the result; each is an axis of one operand
  bool swapped;             // the rows are those of b

  // Few rows or columns, and blocks that are no small part of L2, suit other kernels better.
  static std::optional<token_product> of(std::span<const nest_axis> out,
                                         std::span<const nest_axis> summed, extent block) noexcept {
    using room = token_product_room;
    loop_axes axes;
    for (const nest_axis& x : out) axes.join(x);
    if (axes.size() != 2 || !summed.empty() || block > room::most_block) return {};
    const nest_axis &m = axes[0], &n = axes[1];
    const bool plain = m.a == 1 && m.b == 0 && n.a == 0 && n.b == 1,
               swapped = m.a == 0 && m.b == 1 && n.a == 1 && n.b == 0;
    const bool fits = n.c == 1 && m.length >= room::least_rows && n.length >= room::least_columns;
    if (!fits || (!plain && !swapped)) return {};
    return token_product{m, n, swapped};
  }
};

// Writes columns n .. n + count of rows b as panels, with zeros beyond them.
template <class T, class Arch>
void pack_rows(token_rows<T> b, extent tokens, extent count, T* panels) noexcept {
  constexpr extent width = panel_width<T, Arch>;
  for (extent n = 0; n < count; n += width) {
    const extent here = std::min(width, count - n);
    for (extent t = 0; t < tokens; ++t, panels += width) {
      const T* const from = b.data + t * b.stride + n;
      if (here == width) std::copy_n(from, width, panels);
      else std::fill(std::copy_n(from, here, panels), panels + width, T(0));
    }
  }
}

// c (+)= the sums of the blocks, which are added in order; `scratch` is a line of the cache.
template <class T, class Arch>
void sum_token_product(const token_product& p, token_rows<T> a, token_rows<T> b, T* c,
                       extent tokens, extent block, bool adds, T* scratch) noexcept {
  using room = token_product_room;
  if (p.swapped) std::swap(a, b);
  const extent row_size = room::row_size(block);
  T* const panels = scratch + std::min(room::most_rows, p.rows.length) * row_size;
  for (extent m = 0; m < p.rows.length; m += room::most_rows) {
    const extent rows = std::min(room::most_rows, p.rows.length - m);
    for (extent first = 0; first == 0 || first < tokens; first += block) {
      const extent depth = std::min(block, tokens - first);
      transpose<T, Arch>(a.data + first * a.stride + m, a.stride, depth, rows, scratch, row_size);
      for (extent n = 0; n < p.columns.length; n += room::columns) {
        const extent columns = std::min(room::columns, p.columns.length - n);
        pack_rows<T, Arch>({b.data + first * b.stride + n, b.stride}, depth, columns, panels);
        gemm<T, Arch>({rows,
                       columns,
                       depth,
                       scratch,
                       row_size,
                       {reinterpret_cast<const std::byte*>(panels), &gemm_kernels_of<T, T, Arch>},
                       depth,
                       c + m * p.rows.c + n,
                       p.rows.c,
                       adds || first > 0,
                       block,
                       nullptr},
                      [](auto...) {});
      }
    }
  }
}

}  // namespace fmoe::cpu
