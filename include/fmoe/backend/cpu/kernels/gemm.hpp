// SPDX-License-Identifier: MIT
// c[rows, columns] (+)= a[rows, depth] B, where B is packed in panels (pack.hpp) of T, or of 16-bit
// numbers that are widened when they are read. In every kernel an element is the sum of blocks of
// k, added in order; each block is summed from 0 in plain order by the same operation. So the bits
// of a row depend only on the row, and rounding errors of long sums stay small.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include <fmoe/backend/cpu/kernels/pack.hpp>
#include <fmoe/base/function_ref.hpp>

namespace fmoe::cpu {

template <class T>
struct gemm_tile;

template <class T>
using gemm_kernel_pointer = void (*)(const gemm_tile<T>&) noexcept;

// The kernels of one architecture for panels of one stored type. Entry i of `tiles` is for tiles of
// lone_rows + i rows; the two arrays fetch the data for later from one place or from two. Streams
// are for 1 to 6 rows.
template <class T>
struct gemm_kernels {
  extent row_bytes;  // bytes of a panel for one k
  extent most;
  const gemm_kernel_pointer<T>* tiles[2];
  // Streams over as many panels as suit the rows, and over one panel.
  const gemm_kernel_pointer<T>*streams, *single_streams;
};

template <class T>
struct gemm_panels {  // a packed parameter, or a part of it
  const std::byte* data;
  const gemm_kernels<T>* kernels;
};

template <class T>
struct gemm_args {
  extent rows, columns, depth;
  const T* a;
  extent lda;
  gemm_panels<T> panels;
  extent panel_depth;  // the depth of the whole parameter: the distance between two panels
  T* c;
  extent ldc;
  bool accumulate;          // add the sums to c; otherwise they replace it
  extent block;             // number of terms that are summed separately
  const std::byte* next;    // the weights that the following step reads first, or null
  extent own_ahead = 2048;  // bytes ahead of their use at which lines of a panel come into L1
};

// One register tile: rows × panels of c.
template <class T>
struct gemm_tile {
  extent depth;
  const T* a;
  extent lda;
  const std::byte* b;
  extent panel_bytes;
  T* c;
  extent ldc;
  bool accumulate;
  extent block;
  // The data to prefetch into L2, from one place or in two halves side by side: for every k so many
  // bytes of each.
  const std::byte* next;
  extent next_step;
  extent own_ahead;  // bytes ahead of their use at which lines of the panel come into L1
};

// The accumulators take 12 × 2 of the 32 AVX-512 registers, and 6 × 2 of 16 otherwise; the other
// registers hold two weights and one activation.
template <class Arch>
inline constexpr extent gemm_rows = is_avx512<Arch> ? 12 : 6;

// The number of panels that are taken side by side when there are few rows, so that several streams
// of weights are under way. More accumulators for one element would do the same, but would change
// the order of its sum.
inline constexpr extent streamed_rows = 6;
template <class Arch>
constexpr extent streamed_panels(extent rows) {
  if constexpr (is_avx512<Arch>) return rows <= 2 ? 4 : 2;
  else return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}

// S is the type in the panels; for int16_pair, a holds pairs, too, c integers of 32 bits, and depth
// counts pairs, which make one block. Places are those of the data for later.
template <class T, class S, class Arch, extent Rows, extent Panels, extent Places, bool Stream>
[[gnu::noinline]] void gemm_kernel(const gemm_tile<T>& tile) noexcept {
  constexpr extent lane = lanes<T, Arch>, vectors = 2 * Panels, row_bytes = 2 * lane * sizeof(S),
                   line = std::min<extent>(64, row_bytes);
  const T* __restrict a = tile.a;
  const std::byte* __restrict b = tile.b;
  const extent next_step = tile.next_step, own_ahead = tile.own_ahead;
  const std::byte *next = tile.next, *second = next + tile.depth * next_step;
  const extent lda = tile.lda, ldc = tile.ldc, stride = tile.panel_bytes;
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
      for (extent n = 0; n < vectors; n += 2) {
        const std::byte* const from = b + n / 2 * stride;
        const S* const row = reinterpret_cast<const S*>(from);
        if constexpr (std::is_same_v<S, bf16>) {
          load_pairs<T, Arch>(row, w[n], w[n + 1]);
        } else {
          w[n] = load_as<T, Arch>(row);
          w[n + 1] = load_as<T, Arch>(row + lane);
        }
        for (extent at = 0; at < row_bytes; at += line)
          __builtin_prefetch(from + (Stream ? ahead : own_ahead) + at, 0, 3);
      }
      if (Places > 0) __builtin_prefetch(next, 0, 2);
      if (Places > 1) __builtin_prefetch(second, 0, 2);
      next += next_step;
      second += next_step;
#pragma GCC unroll 12
      for (extent m = 0; m < Rows; ++m) {
        const vec<T, Arch> x(a[m * lda]);
#pragma GCC unroll 8
        for (extent n = 0; n < vectors; ++n) {
          if constexpr (is_int16_pair<S>)
            sums[m][n] = add_dots<S::is_fused, Arch>(x, w[n], sums[m][n]);
          else sums[m][n] = fmadd(x, w[n], sums[m][n]);
        }
      }
      ++a;
      b += row_bytes;
    }
  };
  // 4 KB are in flight for 1 and 2 rows (more is slower from L3), and 8 KB for more rows (DRAM).
  // Near the end of its panel a stream already fetches the panel that it takes next.
  constexpr extent ahead = (Rows <= 2 ? 4096 : 8192) / Panels, near_end = ahead / row_bytes;
  bool first = !tile.accumulate;
  for (extent left = tile.depth; left > 0 || first;) {
    const extent count = std::min(left, tile.block);
    if constexpr (Stream) {
      const extent own = left > near_end ? std::min(count, left - near_end) : 0;
      steps(own, ahead);
      steps(count - own, ahead + Panels * stride - tile.depth * row_bytes);
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

// 3 to 6 rows run as one tile after the other, each of which fetches all of the next panel, if half
// of L2 holds that panel; this is 1.3 times as fast from DRAM as streams. Longer panels are
// streamed, and so are all panels for 1 and 2 rows.
inline constexpr extent lone_rows = 3, lone_panel = extent{128} << 10;

// The heights of several tiles of a panel differ by at most one row, so none is lower than half of
// the highest.
template <class T, class S, class Arch, extent Rows, extent Places>
constexpr gemm_kernel_pointer<T> gemm_tile_kernel() {
  constexpr bool is_lone = Rows < gemm_rows<Arch> / 2;
  if constexpr (is_lone && Places == 1) return nullptr;
  else return &gemm_kernel<T, S, Arch, Rows, 1, Places, false>;
}

template <class T, class S, class Arch, extent Places>
inline constexpr auto gemm_tiles = []<extent... I>(std::index_sequence<I...>) {
  return std::array<gemm_kernel_pointer<T>, sizeof...(I)>{
      gemm_tile_kernel<T, S, Arch, I + lone_rows, Places>()...};
}(std::make_index_sequence<gemm_rows<Arch> - lone_rows + 1>{});

template <class T, class S, class Arch, bool Single>
inline constexpr auto gemm_streams = []<extent... I>(std::index_sequence<I...>) {
  return std::array<gemm_kernel_pointer<T>, sizeof...(I)>{
      &gemm_kernel < T, S, Arch, I + 1, Single ? 1 : streamed_panels<Arch>(I + 1), 0, true > ...};
}(std::make_index_sequence<streamed_rows>{});

template <class T, class S, class Arch>
inline constexpr gemm_kernels<T> gemm_kernels_of = [] {
  return gemm_kernels<T>{panel_width<T, Arch> * sizeof(S),
                         gemm_rows<Arch>,
                         {gemm_tiles<T, S, Arch, 1>.data(), gemm_tiles<T, S, Arch, 2>.data()},
                         gemm_streams<T, S, Arch, false>.data(),
                         gemm_streams<T, S, Arch, true>.data()};
}();

// Runs a tile whose panel is wider than c on a copy of c, so that nothing beyond column `columns`
// is read or written.
template <class T, class Arch>
void run_narrow(gemm_kernel_pointer<T> kernel, gemm_tile<T> tile, extent rows,
                extent columns) noexcept {
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

// Calls done(row, rows, column, columns) for every finished tile of c while the tile is in L1.
template <class T, class Arch>
[[gnu::noinline]] void gemm(const gemm_args<T>& g,
                            function_ref<void(extent, extent, extent, extent)> done) noexcept {
  constexpr extent width = panel_width<T, Arch>;
  const gemm_kernels<T>& kernels = *g.panels.kernels;
  const extent panels = divide_up(g.columns, width),
               panel_bytes = g.panel_depth * kernels.row_bytes;
  const auto run = [&](gemm_kernel_pointer<T> kernel, extent row, extent rows, extent panel,
                       extent count, const std::byte* next,
                       extent next_step) __attribute__((noinline)) {
    const extent column = panel * width, columns = std::min(count * width, g.columns - column);
    const gemm_tile<T> tile{g.depth,     g.a + row * g.lda,
                            g.lda,       g.panels.data + panel * panel_bytes,
                            panel_bytes, g.c + row * g.ldc + column,
                            g.ldc,       g.accumulate,
                            g.block,     next,
                            next_step,   g.own_ahead};
    if (columns == count * width) kernel(tile);
    else run_narrow<T, Arch>(kernel, tile, rows, columns);
    for (extent n = 0; n < columns; n += width)
      done(row, rows, column + n, std::min(width, columns - n));
  };

  if (g.rows == 0) return;
  const bool has_long_panels = g.depth * kernels.row_bytes > lone_panel;
  const bool is_streamed = g.rows < lone_rows || (g.rows <= streamed_rows && has_long_panels);
  if (is_streamed) {
    const extent together = streamed_panels<Arch>(g.rows);
    const extent whole = g.columns / width;
    extent p = 0;
    for (; p + together <= whole; p += together)
      run(kernels.streams[g.rows - 1], 0, g.rows, p, together, nullptr, 0);
    for (; p < panels; ++p) run(kernels.single_streams[g.rows - 1], 0, g.rows, p, 1, nullptr, 0);
    return;
  }

  // The tiles of a panel fetch the next one together, each an even part of it: more at a time would
  // wait for memory. Few tiles fetch from two places at a time, which keeps more of memory busy.
  // With many tiles a k asks for a line that another one has asked for, which is cheaper than
  // kernels of their own.
  constexpr extent few = 3;
  const extent tiles = divide_up(g.rows, kernels.most), places = tiles <= few ? 2 : 1,
               step = divide_up(kernels.row_bytes, places * tiles);
  for (extent p = 0; p < panels; ++p) {
    const std::byte* const b = g.panels.data + p * panel_bytes;
    const std::byte* const next = p + 1 < panels ? b + panel_bytes : g.next != nullptr ? g.next : b;
    for (extent t = 0, row = 0; t < tiles; ++t) {
      const extent rows = divide_up(g.rows - row, tiles - t);
      run(kernels.tiles[places - 1][rows - lone_rows], row, rows, p, 1,
          next + places * t * g.depth * step, step);
      row += rows;
    }
  }
}

}  // namespace fmoe::cpu
