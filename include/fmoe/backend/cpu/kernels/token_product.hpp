// SPDX-License-Identifier: MIT
// Sums over tokens that are products of two matrices, c[m, n] = the sum of a[t, m] b[t, n], by the
// kernels of gemm: of a block of tokens a is transposed, and b packed in panels, some columns at a
// time. A block is summed from 0 in plain order, as token_sum.hpp does, so the bits are the same.
#pragma once

#include <optional>
#include <span>

#include <fmoe/backend/cpu/kernels/block_sums.hpp>
#include <fmoe/backend/cpu/kernels/small_product.hpp>

namespace fmoe::cpu {

template <class T>
struct token_rows {
  const T* data = nullptr;
  extent stride = 0;
};

// The axes of a result that one operand has, whose numbers are neighbours there.
class token_axes {
 public:
  void push(const nest_axis& x) { axes_.push(x); }
  extent count() const { return all().size(); }
  const nest_axis& last() const { return all().back(); }

  // Do they run like one axis, from one number of the operand to the next?
  bool are_neighbours(extent nest_axis::* stride) const {
    extent next = 1;
    for (extent k = count(); k-- > 0; next *= all()[k].length)
      if (all()[k].*stride != next) return false;
    return true;
  }
  extent size() const {
    extent n = 1;
    for (const nest_axis& x : all()) n *= x.length;
    return n;
  }
  // Where number i is in the result.
  extent place(extent i) const {
    extent at = 0;
    for (extent k = count(); k-- > 0; i /= all()[k].length) at += i % all()[k].length * all()[k].c;
    return at;
  }

 private:
  std::span<const nest_axis> all() const { return axes_; }

  loop_axes axes_;
};

struct token_product {
  token_axes rows, columns;  // of the result, each of one operand; the last column axis is a vector
  bool swapped;              // the rows are those of b

  // Few rows or columns, and blocks that are no small part of L2, suit other kernels better.
  static std::optional<token_product> of(std::span<const nest_axis> out,
                                         std::span<const nest_axis> summed, extent block) noexcept {
    using room = token_product_room;
    loop_axes axes;
    for (const nest_axis& x : out) axes.join(x);
    if (!summed.empty() || block > room::most_block) return {};
    token_axes of_a, of_b;
    for (const nest_axis& x : std::span<const nest_axis>(axes)) {
      if ((x.a == 0) == (x.b == 0)) return {};
      (x.a != 0 ? of_a : of_b).push(x);
    }
    if (of_a.count() == 0 || of_b.count() == 0) return {};
    if (!of_a.are_neighbours(&nest_axis::a) || !of_b.are_neighbours(&nest_axis::b)) return {};
    const bool swapped = of_a.last().c == 1;
    token_product p{of_a, of_b, swapped};
    if (swapped) std::swap(p.rows, p.columns);
    const bool fits = p.columns.last().c == 1 && p.rows.size() >= room::least_rows &&
                      p.columns.size() >= room::least_columns;
    return fits ? std::optional(p) : std::nullopt;
  }

  // Can gemm write some columns of the result where they belong?
  bool is_direct() const {
    return rows.count() == 1 && columns.last().length >= token_product_room::least_columns;
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

// to (+)= from, of `count` numbers.
template <class T, class Arch>
FMOE_ALWAYS_INLINE void put(const T* from, extent count, T* to, bool adds) noexcept {
  constexpr extent width = lanes<T, Arch>;
  for (extent k = 0; k < count; k += width) {
    const extent part = std::min(width, count - k);
    const auto sum = load_part<T, Arch>(from + k, part);
    store_part<T, Arch>(to + k, part, adds ? load_part<T, Arch>(to + k, part) + sum : sum);
  }
}

// Puts rows of a tile where they belong in c, or adds them.
template <class T, class Arch>
void put_tile(const token_product& p, const T* tile, extent row_size, extent m, extent rows,
              extent n, extent columns, T* c, bool adds) noexcept {
  constexpr extent width = lanes<T, Arch>, together = 64;
  const extent run = p.columns.last().length;
  const bool follow = p.rows.count() == 1 && p.rows.last().c == run && run < width;
  for (extent i = 0, count; i < columns; i += count) {
    count = std::min(columns - i, run - (n + i) % run);
    T* const to = c + p.columns.place(n + i);
    if (!follow || count < run) {
      for (extent r = 0; r < rows; ++r)
        put<T, Arch>(tile + r * row_size + i, count, to + p.rows.place(m + r), adds);
      continue;
    }
    // Short runs, which are one run in c. Each covers what the vector before it has too much.
    for (extent r = 0; r < rows; r += together) {
      T all[(together + 1) * width], *next = all;
      const extent end = std::min(rows, r + together);
      for (extent k = r; k < end; ++k, next += run)
        store<T, Arch>(next, load_part<T, Arch>(tile + k * row_size + i, run));
      put<T, Arch>(all, (end - r) * run, to + (m + r) * run, adds);
    }
  }
}

// c (+)= the sums of the blocks, which are added in order; `scratch` is a line of the cache. Blocks
// have `block` tokens, or `counts` of them, and not more than `block` in all; then gemm writes the
// result where it belongs.
template <class T, class Arch>
void sum_token_product(const token_product& p, token_rows<T> a, token_rows<T> b, T* c,
                       extent tokens, extent block, bool adds, T* scratch,
                       const extent* counts = nullptr) noexcept {
  using room = token_product_room;
  if (p.swapped) std::swap(a, b);
  const extent row_size = room::row_size(block), all_rows = p.rows.size(),
               all_columns = p.columns.size(), most = std::min(room::most_rows, all_rows);
  T *const panels = scratch + most * row_size, *const tile = panels + room::columns * block;
  const bool is_direct = p.is_direct();
  const extent most_columns = is_direct ? room::columns : room::put_columns;
  for (extent m = 0; m < all_rows; m += room::most_rows) {
    const extent rows = std::min(room::most_rows, all_rows - m);
    for (extent first = 0; first == 0 || first < tokens; first += block) {
      const extent depth = std::min(block, tokens - first);
      const bool adds_here = adds || first > 0;
      transpose<T, Arch>(a.data + first * a.stride + m, a.stride, depth, rows, scratch, row_size);
      for (extent n = 0, columns = 0; n < all_columns; n += columns) {
        const extent run = p.columns.last().length;
        columns = std::min(most_columns, is_direct ? run - n % run : all_columns - n);
        pack_rows<T, Arch>({b.data + first * b.stride + n, b.stride}, depth, columns, panels);
        gemm_args<T> product{
            rows,
            columns,
            depth,
            scratch,
            row_size,
            {reinterpret_cast<const std::byte*>(panels), &gemm_kernels_of<T, T, Arch>},
            depth,
            is_direct ? c + p.rows.place(m) + p.columns.place(n) : tile,
            is_direct ? p.rows.last().c : most_columns,
            is_direct && adds_here,
            block,
            nullptr};
        product.counts = counts;
        product.group = divide_up(columns, panel_width<T, Arch>);  // neighbours in c in turn
        if (counts != nullptr) block_sums<T, Arch>(product);
        else gemm<T, Arch>(product, [](auto...) {});
        if (!is_direct) put_tile<T, Arch>(p, tile, most_columns, m, rows, n, columns, c, adds_here);
      }
    }
  }
}

}  // namespace fmoe::cpu
