// SPDX-License-Identifier: MIT
// c[rows, columns] (+)= a[rows, depth] B, with B packed in panels (pack.hpp).
// Every element sums blocks of k, each in plain order from 0 by one operation, and adds them in order, in each of the
// kernels: a row's bits depend on nothing but the row, and rounding errors of long sums stay small.
#pragma once

#include <array>
#include <utility>

#include <fmoe/cpu/pack.hpp>

namespace fmoe::cpu {

template <class T>
struct gemm_args {
  extent rows, columns, depth;
  const T* a;
  extent lda;
  const T* panels;
  extent panel_stride;  // from one panel to the next: the parameter's whole depth times the panel width
  T* c;
  extent ldc;
  bool accumulate;  // sums are added to c, else replace it
  extent block;     // terms that are summed by themselves
  const T* next;    // the weights that the following step reads first, or null
};

// One register tile: rows × panels of c.
template <class T>
struct gemm_tile {
  extent depth;
  const T* a;
  extent lda;
  const T* b;
  extent panel_stride;
  T* c;
  extent ldc;
  bool accumulate;
  extent block;
  const T* next;  // what to prefetch
};

// 12 × 2 accumulators of the 32 AVX-512 registers, 6 × 2 of the 16 others; the rest holds two weights and one activation.
template <class Arch>
inline constexpr extent gemm_rows = is_avx512<Arch> ? 12 : 6;

// Panels taken side by side when rows are few, so that several streams of weights are under way. More accumulators for one
// element would do the same, but change the order of its sum.
template <class Arch>
constexpr extent streamed_panels(extent rows) {
  if (rows > 6) return 0;
  if constexpr (is_avx512<Arch>) return rows <= 2 ? 4 : 2;
  else return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}

// Prefetch: lines of `next` fetched into L2 for every k.
template <class T, class Arch, extent Rows, extent Panels, extent Prefetch, bool Stream>
[[gnu::noinline]] void gemm_kernel(const gemm_tile<T>& tile) noexcept {
  constexpr extent lane = lanes<T, Arch>, vectors = 2 * Panels, line = std::min(64 / sizeof(T), 2 * lane);
  const T* __restrict a = tile.a;
  const T* __restrict b = tile.b;
  const T* next = tile.next;
  const extent lda = tile.lda, ldc = tile.ldc, stride = tile.panel_stride;
  T* __restrict const c = tile.c;
  vec<T, Arch> sums[Rows][vectors];
  const auto clear = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 12
    for (extent m = 0; m < Rows; ++m)
#pragma GCC unroll 8
      for (extent n = 0; n < vectors; ++n) sums[m][n] = vec<T, Arch>(T(0));
  };
  clear();
#pragma GCC unroll 12
  for (extent m = 0; m < Rows; ++m)
#pragma GCC unroll 8
    for (extent n = 0; n < vectors; ++n) __builtin_prefetch(c + m * ldc + n * lane, 1, 3);
  const auto steps = [&](extent count, extent ahead) __attribute__((always_inline)) {
    for (; count > 0; --count) {
      vec<T, Arch> w[vectors];
#pragma GCC unroll 8
      for (extent n = 0; n < vectors; ++n) {
        const T* const from = b + n / 2 * stride + n % 2 * lane;
        w[n] = load<T, Arch>(from);
        if (Stream && (lane >= line || n % 2 == 0)) __builtin_prefetch(from + ahead, 0, 3);
      }
#pragma GCC unroll 2
      for (extent p = 0; p < Prefetch; ++p) __builtin_prefetch(next + p * line, 0, 2);
      next += Prefetch * line;
#pragma GCC unroll 12
      for (extent m = 0; m < Rows; ++m) {
        const vec<T, Arch> x(a[m * lda]);
#pragma GCC unroll 8
        for (extent n = 0; n < vectors; ++n) sums[m][n] = fmadd(x, w[n], sums[m][n]);
      }
      ++a;
      b += 2 * lane;
    }
  };
  // 4 KB in flight for 1 and 2 rows (L3 likes no more), 8 KB above (DRAM). Near the end of its panel a stream already reads
  // the panel that it takes next.
  constexpr extent ahead = (Rows <= 2 ? 4096 : 8192) / sizeof(T) / Panels, near_end = ahead / (2 * lane);
  bool first = !tile.accumulate;
  for (extent left = tile.depth; left > 0 || first;) {
    const extent count = std::min(left, tile.block);
    if constexpr (Stream) {
      const extent own = left > near_end ? std::min(count, left - near_end) : 0;
      steps(own, ahead);
      steps(count - own, ahead + Panels * stride - tile.depth * 2 * lane);
    } else {
      steps(count, 0);
    }
#pragma GCC unroll 12
    for (extent m = 0; m < Rows; ++m)
#pragma GCC unroll 8
      for (extent n = 0; n < vectors; ++n) {
        T* const to = c + m * ldc + n * lane;
        store<T, Arch>(to, first ? sums[m][n] : load<T, Arch>(to) + sums[m][n]);
      }
    clear();
    first = false;
    left -= count;
  }
}

template <class T>
using gemm_kernel_pointer = void (*)(const gemm_tile<T>&) noexcept;

// The kernels for 1, 2, … rows: tiles that prefetch so many lines of the next panel for every k, ...
template <class T, class Arch, extent Prefetch>
inline constexpr auto gemm_tiles = []<extent... I>(std::index_sequence<I...>) {
  return std::array<gemm_kernel_pointer<T>, sizeof...(I)>{&gemm_kernel<T, Arch, I + 1, 1, Prefetch, false>...};
}(std::make_index_sequence<gemm_rows<Arch>>{});

// ... streams over as many panels as suit the rows, and over one.
template <class T, class Arch, bool Single>
inline constexpr auto gemm_streams = []<extent... I>(std::index_sequence<I...>) {
  return std::array<gemm_kernel_pointer<T>, sizeof...(I)>{
      &gemm_kernel<T, Arch, I + 1, Single ? 1 : streamed_panels<Arch>(I + 1), 0, true>...};
}(std::make_index_sequence<6>{});

// Runs a tile whose panel is wider than c in a copy of c, so that nothing beyond column `columns` is read or written.
template <class T, class Arch>
void run_narrow(gemm_kernel_pointer<T> kernel, gemm_tile<T> tile, extent rows, extent columns) noexcept {
  constexpr extent width = panel_width<T, Arch>;
  alignas(64) T copy[gemm_rows<Arch> * width] = {};
  T* const c = std::exchange(tile.c, copy);
  const extent ldc = std::exchange(tile.ldc, width);
  if (tile.accumulate)
    for (extent m = 0; m < rows; ++m)
      for (extent n = 0; n < columns; ++n) copy[m * width + n] = c[m * ldc + n];
  kernel(tile);
  for (extent m = 0; m < rows; ++m)
    for (extent n = 0; n < columns; ++n) c[m * ldc + n] = copy[m * width + n];
}

// done(row, rows, column, columns) is called for every finished tile of c while it is in L1.
template <class T, class Arch, class Done>
void gemm(const gemm_args<T>& g, Done&& done) noexcept {
  constexpr extent width = panel_width<T, Arch>;
  const extent panels = divide_up(g.columns, width);
  const auto run = [&](gemm_kernel_pointer<T> kernel, extent row, extent rows, extent panel, extent count, const T* next) {
    const extent column = panel * width, columns = std::min(count * width, g.columns - column);
    const gemm_tile<T> tile{g.depth, g.a + row * g.lda, g.lda, g.panels + panel * g.panel_stride, g.panel_stride,
                            g.c + row * g.ldc + column, g.ldc, g.accumulate, g.block, next};
    if (columns == count * width) kernel(tile);
    else run_narrow<T, Arch>(kernel, tile, rows, columns);
    for (extent n = 0; n < columns; n += width) done(row, rows, column + n, std::min(width, columns - n));
  };

  if (g.rows == 0) return;
  if (const extent together = streamed_panels<Arch>(g.rows); together > 0) {
    const extent whole = g.columns / width;
    extent p = 0;
    for (; p + together <= whole; p += together)
      run(gemm_streams<T, Arch, false>[g.rows - 1], 0, g.rows, p, together, nullptr);
    for (; p < panels; ++p) run(gemm_streams<T, Arch, true>[g.rows - 1], 0, g.rows, p, 1, nullptr);
    return;
  }

  // The first tiles of a panel fetch the next one, a line for every k each; a lone tile fetches all of it.
  constexpr extent line = std::min(64 / sizeof(T), width), lines = width / line;
  const extent tiles = divide_up(g.rows, gemm_rows<Arch>), each = tiles < lines ? lines : 1;
  const auto& fetching = each == 1 ? gemm_tiles<T, Arch, 1> : gemm_tiles<T, Arch, lines>;
  for (extent p = 0; p < panels; ++p) {
    const T* const b = g.panels + p * g.panel_stride;
    const T* const next = p + 1 < panels ? b + g.panel_stride : g.next != nullptr ? g.next : b;
    for (extent t = 0, row = 0; t < tiles; ++t) {
      const extent rows = divide_up(g.rows - row, tiles - t);
      const auto& kernels = t * each < lines ? fetching : gemm_tiles<T, Arch, 0>;
      run(kernels[rows - 1], row, rows, p, 1, next + t * each * g.depth * line);
      row += rows;
    }
  }
}

}  // namespace fmoe::cpu
